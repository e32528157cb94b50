#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/conformance.sh BIN_DIR RESULTS_DIR [GTEST_FILTER]: the conformance suite over real queue
# pairs: all cases on verbs, and the slow decorator's over it.
. "$(dirname "$0")/guest.sh"
filter=${3:-'*/verbs:*/faulty_verbs:VerbsConformance.*'}
suite="$bin/test_conformance --gtest_brief=1 --gtest_filter=$(printf %q "$filter")"
has_devices && run_here "$suite"
run_in_guest --timeout 600 -c "$suite"
