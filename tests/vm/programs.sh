#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/programs.sh BIN_DIR RESULTS_DIR: the command and the examples over verbs: what `pawl
# info` sees, each example on one device, and the demo with its two processes on two devices.
. "$(dirname "$0")/guest.sh"
source_dir=$(dirname "$(realpath "$0")")/../..
lines=("$bin/pawl info | grep 'RDMA port.*rxe0.*10.77.0.1'")
for example in "$bin"/example_[0-9][0-9]_*; do
  name=${example##*/example_}
  # Its call has 50 ms, with the connection that it needs first: more than an emulated CPU keeps.
  [ "$name" != 06_deadline_and_cancel ] || continue
  lines+=("PAWL_FABRIC=verbs python3 -B $source_dir/tests/examples/run.py \
$source_dir/examples/$name.cc $example && echo 'example $name: ok'")
done
lines+=("$bin/pawl demo --fabric verbs --seconds 60 --json \$RDMA_GUEST_RESULTS/demo.json &&
grep -q '\"server_fabric\": \"verbs:rxe0' \$RDMA_GUEST_RESULTS/demo.json &&
grep -q '\"client_fabric\": \"verbs:rxe1' \$RDMA_GUEST_RESULTS/demo.json")
arguments=()
for line in "${lines[@]}"; do arguments+=(-c "$line"); done
run_in_guest --timeout 600 --memory 4G "${arguments[@]}"
