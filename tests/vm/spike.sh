#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/spike.sh PROGRAM [SCENARIO]: runs the verbs spike on two soft-RoCE devices.
# 77 = skipped with a reason: the guest cannot run here.
set -euo pipefail
[ -x "${1:-}" ] || { echo "usage: $0 verbs_spike [scenario]" >&2; exit 64; }
exec "$(dirname "$0")/../../scripts/rdma-guest" --timeout 600 -- "$@"
