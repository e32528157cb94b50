#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh [FILES]: formats these, or all C++ files, as the check wants it.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/../tests/tidy/check_format.py" --fix "$@"
