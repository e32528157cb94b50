#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_format.py [--fix] [FILES]: clang-format 14 would change nothing, or with --fix, does.

Skipped (77) where it is not installed.
"""
import os
import re
import shutil
import subprocess
import sys

import files

TOOL = "clang-format-14"


def main():
    if shutil.which(TOOL) is None:
        print(f"SKIP: {TOOL} is not installed")
        sys.exit(77)
    named = [os.path.relpath(path, files.ROOT) for path in sys.argv[1:] if path != "--fix"]
    paths = [path for path in named or files.repository_files() if files.is_cpp(path)]
    if not paths:
        files.finish("format", [])
        return
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror", "--ferror-limit=1"]
    run = subprocess.run([TOOL, "--style=file"] + mode + paths, cwd=files.ROOT,
                         capture_output=True, text=True, check=False)
    findings = re.findall(r"^(\S+?:\d+):\d+: error: .*clang-format", run.stderr, re.M)
    if run.returncode != 0 and not findings:
        sys.exit(run.stderr)
    files.finish("format", [f"{where}: not as {TOOL} writes it" for where in findings],
                 "scripts/format.sh mends it.")


if __name__ == "__main__":
    main()
