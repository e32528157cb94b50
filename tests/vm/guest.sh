# SPDX-License-Identifier: Apache-2.0
# Sourced by the cases of tests/vm, which are called with the folder of the programs and a folder
# for results. run_in_guest OPTIONS... takes those of scripts/rdma-guest. A machine that has RDMA
# devices of its own runs the same lines on them, without a guest.
set -euo pipefail
[ -d "${1:-}" ] && [ -n "${2:-}" ] || { echo "usage: $0 BIN_DIR RESULTS_DIR" >&2; exit 64; }
bin=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
guest=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../scripts/rdma-guest

run_in_guest() {
  local status=0 log=$results/output
  "$guest" --results "$results" "$@" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
  if [ "$status" = 77 ]; then
    echo "SKIP: $(sed -n 's/^rdma-guest: skipped: //p' "$log" | tail -n 1)"
  fi
  exit "$status"
}

run_here() {
  local line
  for line in "$@"; do bash -c "$line"; done
  exit 0
}

has_devices() { [ -n "$(ls -A /sys/class/infiniband 2>/dev/null)" ]; }
