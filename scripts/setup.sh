#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh run|test|ci|soak: installs, on Debian 12, what that job needs and is missing (as root).
set -euo pipefail

packages_run=(g++ cmake ninja-build libisal-dev libprotobuf-dev libprotoc-dev protobuf-compiler
              libfmt-dev libcli11-dev libibverbs-dev ibverbs-providers)
packages_test=(ccache clang-format-14 git python3 libgtest-dev libgmock-dev)
packages_ci=(clang-19 clang-tidy-19 libclang-rt-19-dev g++-aarch64-linux-gnu spin
             qemu-system-x86 busybox-static cpio kmod iproute2)  # the last five: tests/vm
packages_soak=(qemu-user-static googletest)  # tests/aarch64

case "${1:-}" in
  run)  wanted=("${packages_run[@]}") ;;
  test) wanted=("${packages_run[@]}" "${packages_test[@]}") ;;
  ci)   wanted=("${packages_run[@]}" "${packages_test[@]}" "${packages_ci[@]}") ;;
  soak) wanted=("${packages_run[@]}" "${packages_test[@]}" "${packages_ci[@]}"
                "${packages_soak[@]}") ;;
  *)    echo "usage: $0 run|test|ci|soak" >&2; exit 64 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup: not a Debian system; install by hand: ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if [[ $(id -u) -ne 0 ]]; then
  echo "setup: missing packages; as root: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for attempt in 1 2 3; do
  if { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
       </dev/null >"$log" 2>&1; then
    exit 0
  fi
  echo "setup: apt-get failed (attempt $attempt of 3)" >&2
done
tail -n 30 "$log" >&2
exit 1
