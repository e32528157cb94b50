#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/disturb.sh WHAT: in the guest, disturbs the network between its first two devices, and
# mends it. tests/vm/network.sh calls it while calls are under way.
set -e

# A link that was down, or an address that was gone, has forgotten its neighbours.
neighbours() {
  ip neigh replace 10.77.0.2 dev net0 nud permanent lladdr "$(cat /sys/class/net/net1/address)"
  ip neigh replace 10.77.0.1 dev net1 nud permanent lladdr "$(cat /sys/class/net/net0/address)"
}

down_and_up() {
  ip link set "$1" down
  sleep 1
  ip link set "$1" up
  neighbours
}

case $1 in
  client_link) down_and_up net1 ;;
  server_link) down_and_up net0 ;;
  cable) down_and_up port1 ;;
  silence)  # nobody is told
    tc qdisc replace dev port0 root netem loss 100%
    sleep 3
    tc qdisc del dev port0 root
    ;;
  address)
    ip addr del 10.77.0.2/24 dev net1
    sleep 1
    ip addr add 10.77.0.2/24 dev net1
    neighbours
    ;;
  *) exit 64 ;;
esac
