#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/vm/kit.sh BIN_DIR RESULTS_DIR [GTEST_FILTER]: late READs and storms between processes, over
# verbs: the cells of verified reuse, their controls without a guard, and those of memory windows.
. "$(dirname "$0")/guest.sh"
filter=${3:-'*LateRead*:*Storm*'}
suite="PAWL_FABRIC=verbs $bin/test_kit --gtest_brief=1 --gtest_filter=$(printf %q "$filter")"
has_devices && run_here "$suite"
run_in_guest --timeout 600 --memory 4G -c "$suite"
