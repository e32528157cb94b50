#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every test that a document names is there: `Suite.Case`, `Prefix/Suite.Case`, `Suite.Case/*`."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("PAWL_SOURCE_DIR") or pathlib.Path(__file__).parents[2])
CASE = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
NAMED = re.compile(r"`(?:\w+/)?([A-Z]\w+)\.([A-Z]\w+)(?:/[\w*/]+)?`")


def main():
    cases = set()
    for path in (ROOT / "tests").rglob("*.cc"):
        cases.update(CASE.findall(path.read_text(encoding="utf-8")))
    wrong = 0
    for path in sorted((ROOT / "docs").glob("*.md")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name in NAMED.findall(line):
                if name not in cases:
                    print(f"docs/{path.name}:{number}: there is no test {name[0]}.{name[1]}")
                    wrong += 1
    print(f"named tests: {'ok' if wrong == 0 else f'{wrong} are not there'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
