#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/loss.sh BIN_DIR RESULTS_DIR: storms between two processes on two devices, whose packets
# are lost, doubled and reordered on the way. The queues say how many were lost: without that
# nothing was tried.
. "$(dirname "$0")/guest.sh"
fabrics="PAWL_KIT_LOSSY=1 PAWL_FABRIC=verbs:rxe1 PAWL_KIT_SERVER_FABRIC=verbs:rxe0"
suite="$fabrics $bin/test_kit --gtest_brief=1"
read -r -d '' lossy <<EOF || true
for port in port0 port1; do
  tc qdisc replace dev \$port root netem loss 1% duplicate 1% reorder 2% delay 200us limit 10000
done || exit 1
$suite --gtest_filter='StormOfProcesses.*' || exit 1
for port in port0 port1; do
  lost=\$(tc -s qdisc show dev \$port | sed -n 's/.*dropped \([0-9]*\).*/\1/p')
  echo "\$port lost \$lost packets"
  [ "\$lost" -gt 0 ] || exit 1
  tc qdisc del dev \$port root
done
EOF
run_in_guest --timeout 600 --memory 4G -c "$lossy"
