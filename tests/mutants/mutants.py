#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Switches off, one at a time, what protects a buffer, and sees that a test fails.

usage: mutants.py [--list] [--table FILE] [NAME ...]     (all by default)

Works on a copy of the tree. A mutant that no test catches is a hole in the tests: exit status 1.
With --table the result is written into FILE as docs/mutants.md has it.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

from outsider import OUTSIDER
from table import EVERYTHING, MUTANTS

BEGIN, END = "<!-- rows: tests/mutants/mutants.py -->", "<!-- end of rows -->"
DOES_NOT_BUILD = "DOES NOT BUILD"


def run(command, cwd):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                          check=False).returncode


def caught_by(tree):
    """The first test that fails, or None. Each program is built when it is needed: most mutants are
    caught by the first ones, and linking is what takes the time."""
    for program in EVERYTHING:
        if run(["ninja", "-C", "build/debug", program[0]], tree) != 0:
            return DOES_NOT_BUILD
        command = ["timeout", "300", f"build/debug/bin/{program[0]}", *program[1:],
                   "--gtest_brief=1", "--gtest_fail_fast"]
        result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False,
                                errors="replace")
        if result.returncode != 0:
            failed = re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", result.stdout, re.MULTILINE)
            if failed:
                return failed[0]
            begun = re.findall(r"^\[ RUN      \] ([\w/]+\.[\w/]+)", result.stdout, re.MULTILINE)
            how = "did not end" if result.returncode == 124 else "aborted"
            return f"{begun[-1] if begun else program[0]} {how}"
    return None


def copy_of_tree():
    root = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True,
                          check=True).stdout.strip()
    tree = tempfile.mkdtemp(prefix="pawl-mutants-")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    for name in files.stdout.decode().split("\0"):
        if name and os.path.isfile(os.path.join(root, name)):
            os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
            shutil.copy2(os.path.join(root, name), os.path.join(tree, name))
    run(["git", "init", "-q"], tree)
    return tree


def try_one(tree, path, old, new):
    """Who catches it; a sentence in capitals if nobody could."""
    full = os.path.join(tree, path)
    with open(full, encoding="utf-8") as file:
        original = file.read()
    if original.count(old) != 1:
        return "ITS TEXT IS NOT THERE ONCE"
    with open(full, "w", encoding="utf-8") as file:
        file.write(original.replace(old, new))
    try:
        return caught_by(tree) or "NOT CAUGHT"
    finally:
        with open(full, "w", encoding="utf-8") as file:
            file.write(original)


def write_table(path, results):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rows = ["| what is switched off | where | why it would hurt | caught by |", "|---|---|---|---|"]
    rows += [f"| {name} | `{where}` | {why} | `{by}` |" for name, where, why, by in results]
    head, rest = text.split(BEGIN)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + "\n".join(rows) + "\n" + END + rest.split(END)[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", metavar="FILE")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows = [(*row, "") for row in MUTANTS] + OUTSIDER
    if options.names:
        rows = [row for row in rows if row[0] in options.names]
    if options.list:
        print("\n".join(row[0] for row in rows))
        return 0
    tree = copy_of_tree()
    try:
        # Without debug information, which would take most of the time, and file by file.
        configure = ["cmake", "--preset", "debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1",
                     "-DPAWL_JOIN_SOURCES=OFF"]
        if run(configure, tree) != 0:
            print("mutants: the unchanged tree is not configured")
            return 1
        if by := caught_by(tree):
            print(f"mutants: on the unchanged tree: {by}")
            return 1
        results = []
        for name, path, old, new, why in rows:
            by = try_one(tree, path, old, new)
            print(f"{name:50} {by}", flush=True)
            results.append((name, path, why, by))
        if options.table:
            write_table(options.table, results)
        holes = sum(by.isupper() for _, _, _, by in results)
        print(f"{len(rows) - holes} of {len(rows)} caught")
        return 1 if holes else 0
    finally:
        shutil.rmtree(tree, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
