#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py FILE COMPILER [FLAGS...]: does the compiler say what the file expects?

The file holds lines `// EXPECT-ERROR: part of the message`, or `// EXPECT-OK`.
"""
import re
import subprocess
import sys


def main():
    source, command = sys.argv[1], sys.argv[2:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    expected = [part.strip() for part in re.findall(r"^// EXPECT-ERROR:(.*)$", text, re.M)]
    expect_ok = re.search(r"^// EXPECT-OK\b", text, re.M) is not None
    if expect_ok == bool(expected):
        sys.exit(f"{source}: wants either lines `// EXPECT-ERROR: text` or `// EXPECT-OK`")

    run = subprocess.run(command + [source], capture_output=True, text=True, check=False)
    output = run.stdout + run.stderr
    problem = None
    if expect_ok and run.returncode != 0:
        problem = "should compile, but the compiler refused it"
    elif expected and run.returncode == 0:
        problem = "should be refused, but it compiled"
    else:
        missing = [part for part in expected if part not in output]
        if missing:
            problem = "was refused without the expected words:\n  " + "\n  ".join(missing)
    if problem:
        print(output)
        sys.exit(f"{source} {problem}")


if __name__ == "__main__":
    main()
