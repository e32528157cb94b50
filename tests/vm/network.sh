#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/network.sh BIN_DIR RESULTS_DIR [WHAT...]: what happens to networks (by default all that
# disturb.sh knows) while calls are under way between two processes on two devices. Each disturbance
# ends by itself; the calls after it must go well, with no wrong byte, and in the end the devices
# have no more resources than before, and the kernel has complained of nothing.
. "$(dirname "$0")/guest.sh"
disturb=$(dirname "$(realpath "$0")")/disturb.sh
suite="PAWL_FABRIC=verbs:rxe1 PAWL_KIT_SERVER_FABRIC=verbs:rxe0 $bin/test_kit --gtest_brief=1"
what=("${@:3}")
[ ${#what[@]} -gt 0 ] || what=(client_link server_link cable silence address)
read -r -d '' lines <<EOF || true
resources() { rdma resource show | sort; }
resources >\$RDMA_GUEST_RESULTS/before
for what in ${what[*]}; do
  echo "-- \$what"
  PAWL_KIT_DISTURB="$disturb \$what" $suite --gtest_filter='StormOfProcesses.Disturbed*' || exit 1
done
echo "-- a server that stops"
$suite --gtest_filter='StormOfProcesses.Stopped*' || exit 1
echo "-- MTU 4096 at one end, 1024 at the other"
ip link set net1 mtu 1500 && ip link set port1 mtu 1500 || exit 1
$suite --gtest_filter='StormOfProcesses.Dropped*' || exit 1
echo "-- a server that is killed"
$suite --gtest_filter='StormOfProcesses.Killed*' || exit 1
resources >\$RDMA_GUEST_RESULTS/after
diff \$RDMA_GUEST_RESULTS/before \$RDMA_GUEST_RESULTS/after || exit 1
! dmesg | grep -E 'BUG|WARNING|Oops|Call Trace'
EOF
run_in_guest --timeout 600 --memory 4G -c "$lines"
