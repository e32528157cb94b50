#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Report: files longer than one holds in the head. Fails only far above the goal."""
import files

GOALS = ((".h", 250), (".cc", 500))
FACTOR_MAX = 2


def main():
    findings, lines_total, count = [], 0, 0
    longer = []
    for path in files.repository_files():
        for suffix, goal in GOALS:
            if path.endswith(suffix):
                lines = files.read(path).count("\n")
                lines_total, count = lines_total + lines, count + 1
                if lines > goal * FACTOR_MAX:
                    findings.append(f"{path}:1: {lines} lines, more than {FACTOR_MAX} times "
                                    f"the goal of {goal}: split it by protocol event")
                elif lines > goal:
                    longer.append((lines, goal, path))
    for lines, goal, path in sorted(longer, reverse=True):
        print(f"note: {path}: {lines} lines, the goal is {goal}")
    print(f"{count} files, {lines_total} lines")
    files.finish("sizes", findings)


if __name__ == "__main__":
    main()
