# SPDX-License-Identifier: Apache-2.0
# The steps of ./test, which sources this file. Sets nothing up by itself.
# Uses: mode (test, ci, soak), ctest_arguments.

logs=build/logs
jobs=$(nproc)
step_table=()      # "seconds result name", one a step
junit_files=()
checks_passed=0    # steps that are not tests of ctest
checks_failed=0
failed_steps=()    # --failed-step NAME...

prepare_environment() {
  rm -rf "$logs"
  mkdir -p "$logs"
  if [[ -z ${PAWL_TEST_SEED:-} ]]; then
    local commit
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=1
    PAWL_TEST_SEED=$((16#${commit:0:12}))
  fi
  export PAWL_TEST_SEED
  echo "seed: PAWL_TEST_SEED=$PAWL_TEST_SEED"
}

# step name command...: runs it, shows and keeps its output, notes time and result.
step() {
  local name=$1 started=$SECONDS result=ok out tee_pid
  shift
  step_counts=yes  # a step of ctest sets it to no: its tests are counted one by one
  skip_reason=
  echo "== $name"
  exec {out}> >(tee "$logs/$name.log")  # no pipe: the step sets variables of this shell
  tee_pid=$!
  "$@" >&$out 2>&1 </dev/null || result=FAILED
  exec {out}>&-
  wait "$tee_pid"
  [[ -z $skip_reason ]] || result="left out: $skip_reason"
  step_table+=("$(printf '%5d s  %-14s %s' $((SECONDS - started)) "$name" "$result")")
  if [[ $result == FAILED ]]; then
    failed_steps+=(--failed-step "$name")
    [[ $step_counts == no ]] || checks_failed=$((checks_failed + 1))
    return 1
  fi
  [[ $step_counts == no || -n $skip_reason ]] || checks_passed=$((checks_passed + 1))
}

# Setup and builds are no checks: only their failure counts.
setup() {
  scripts/setup.sh "$1" || return 1
  step_counts=no
}

# build preset [targets...]: all, or those of these targets that there are.
build() {
  local preset=$1 target targets=()
  shift
  cmake --preset "$preset" >"$logs/configure-$preset.log" 2>&1 ||
    { cat "$logs/configure-$preset.log"; return 1; }
  for target in "$@"; do
    has_target "$preset" "$target" && targets+=("$target")
  done
  cmake --build "build/$preset" ${targets:+--target "${targets[@]}"} -- --quiet -k 20 || return 1
  step_counts=no
}

# For aarch64, of which tests/aarch64 says what there is.
build_aarch64() {
  cmake -S tests/aarch64 -B build/aarch64 -G Ninja -D CMAKE_TOOLCHAIN_FILE=toolchain.cmake \
    >"$logs/configure-aarch64.log" 2>&1 || { cat "$logs/configure-aarch64.log"; return 1; }
  cmake --build build/aarch64 -- --quiet -k 20 || return 1
  step_counts=no
}

build_release() {
  cmake --preset release >"$logs/configure-release.log" 2>&1 ||
    { cat "$logs/configure-release.log"; return 1; }
  has_target release pawl-command || { skip_reason="no pawl command yet"; return 0; }
  cmake --build build/release --target pawl-command -- --quiet || return 1
  step_counts=no
}

has_target() { [[ $(ninja -C "build/$1" -t query "$2" 2>&1) != *unknown* ]]; }

# run_tests preset [ctest arguments...]
run_tests() {
  local preset=$1 junit timeout_seconds=120 runner=()
  shift
  junit=$PWD/$logs/junit-$preset${PAWL_TEST_SOAK:+-soak}.xml
  [[ -z ${PAWL_TEST_SOAK:-} ]] || timeout_seconds=14400
  # The thread sanitizer of g++ 12 cannot map its shadow where addresses are very random.
  if [[ $preset == tsan ]] && setarch -R true 2>/dev/null; then
    runner=(setarch -R)
  fi
  step_counts=no
  junit_files+=("$junit")
  "${runner[@]}" ctest --test-dir "build/$preset" --parallel "$jobs" --timeout "$timeout_seconds" \
    --output-on-failure --no-tests=ignore --output-junit "$junit" --test-output-size-passed 65536 \
    "$@" "${ctest_arguments[@]}"
}

# The same at the long counts.
run_long_tests() {
  export PAWL_TEST_SOAK=1
  run_tests "$@"
  local result=$?
  unset PAWL_TEST_SOAK
  return $result
}

# Layers, format, sizes: no build needed.
run_checks() {
  local failed=0 check
  for check in tests/tidy/check_*.py; do
    python3 -B "$check" || failed=1
  done
  return $failed
}

# clang-tidy on what changed since the commit before (PAWL_CI_BASE), tests and examples aside, since
# their headers cost 10 s a file and more; on all files with --soak.
run_tidy() {
  local arguments=(--base "${PAWL_CI_BASE:-HEAD~1}" --files-max "${PAWL_CI_TIDY_FILES_MAX:-40}")
  [[ $mode == soak ]] && arguments=(--all)
  python3 -B scripts/changed_sources.py "${arguments[@]}" build/clang >"$logs/tidy-files.txt" ||
    return 1
  if [[ ! -s $logs/tidy-files.txt ]]; then
    skip_reason="no source file changed"
    return 0
  fi
  xargs -a "$logs/tidy-files.txt" run-clang-tidy-19 -quiet -p build/clang -j "$jobs"
}

# run_fuzz seconds: libFuzzer, each target for as long, two at a time.
run_fuzz() { python3 -B tests/fuzz/run.py --jobs "$jobs" --seconds "$1"; }

run_demo() {
  [[ -x build/release/bin/pawl ]] || { skip_reason="no pawl command yet"; return 0; }
  build/release/bin/pawl demo --help >/dev/null 2>&1 || { skip_reason="no demo yet"; return 0; }
  build/release/bin/pawl demo --seconds "${PAWL_CI_DEMO_SECONDS:-15}"
}

finish() {
  echo
  echo "== times (logs in $logs)"
  printf '%s\n' "${step_table[@]}"
  printf '%5d s  all\n' "$SECONDS"
  if ! command -v python3 >/dev/null; then
    echo "0 passed, $((checks_failed > 0 ? checks_failed : 1)) failed, 0 skipped"
    exit 1
  fi
  python3 -B scripts/test_summary.py --checks-passed "$checks_passed" \
    --checks-failed "$checks_failed" "${failed_steps[@]}" "${junit_files[@]}"
  exit
}
