#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py SOURCE PROGRAM [LINE...]: does the example leave with 0 and print what its head says?

The head of SOURCE may hold a line `// Prints:`, followed by lines `//   text`. They must appear in
this order; other lines may stand between them. LINE stands for them where the source, which the
README quotes, has no such head.
"""
import re
import subprocess
import sys


def expected_lines(source):
    with open(source, encoding="utf-8") as file:
        head = re.search(r"^// Prints:\n((?://   .*\n)+)", file.read(), re.M)
    return [line[5:] for line in head.group(1).splitlines()] if head else []


def main():
    source, program, *wanted = sys.argv[1:]
    run = subprocess.run([program], capture_output=True, text=True, errors="replace", check=False)
    print(run.stdout + run.stderr)
    lines = iter(run.stdout.splitlines())
    missing = [line for line in wanted or expected_lines(source) if line not in lines]
    if missing:
        print("not printed, or not in this order:\n  " + "\n  ".join(missing))
    if run.returncode != 0:
        print(f"it left with {run.returncode}")
    sys.exit(1 if missing or run.returncode != 0 else 0)


if __name__ == "__main__":
    main()
