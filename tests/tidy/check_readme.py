#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code in README.md is the code that the tests run.

A line `<!-- FILE -->` before a code block says which file the block must equal.
"""
import os
import re
import sys

root = os.environ.get("PAWL_SOURCE_DIR") or os.path.join(os.path.dirname(__file__), "..", "..")
with open(os.path.join(root, "README.md"), encoding="utf-8") as readme:
    blocks = re.findall(r"<!-- (\S+) -->\n```\w*\n(.*?)```", readme.read(), re.DOTALL)
wrong = 0
for name, quoted in blocks:
    with open(os.path.join(root, name), encoding="utf-8") as file:
        if file.read() != quoted:
            print(f"README.md: its copy of {name} differs from the file: paste the file again")
            wrong += 1
if not blocks:
    print("README.md quotes no file: the marker lines are gone")
    wrong = 1
print("readme: ok" if not wrong else f"readme: {wrong} finding(s)")
sys.exit(1 if wrong else 0)
