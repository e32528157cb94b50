#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files for clang-tidy, one regular expression a line; what was chosen and left out on stderr.

    changed_sources.py [--base COMMIT] [--files-max N] BUILD_DIR
    changed_sources.py --all BUILD_DIR

Those of compile_commands.json that changed since the merge base with COMMIT (HEAD~1 by default),
committed or not, tests and examples aside. A changed header stands for the .cc beside it and for
the file that compiles it alone. Of more than N the ones with most changed lines are taken.
"""
import argparse
import json
import os
import re
import subprocess
import sys


def git(*arguments):
    run = subprocess.run(("git",) + arguments, capture_output=True, text=True, check=False)
    return run.stdout.splitlines() if run.returncode == 0 else None


def changed_lines(base):
    """Path -> number of changed lines, or None without a history to compare with."""
    merge_base = git("merge-base", "HEAD", base)
    if not merge_base:
        return None
    counts = {}
    for line in git("diff", "--numstat", "--no-renames", "--diff-filter=d", merge_base[0]) or []:
        added, removed, path = line.split("\t")
        counts[path] = int(added) + int(removed) if added != "-" else 0
    for path in git("ls-files", "--others", "--exclude-standard") or []:
        with open(path, "rb") as file:
            counts[path] = file.read().count(b"\n")
    return counts


def key_of(path):
    """What the files that stand for one another have in common."""
    if path.startswith("build/"):  # made by tests/headers: pawl_pool_h.cc
        return re.sub(r"_h\.cc$", "", os.path.basename(path))
    return re.sub(r"[^A-Za-z0-9]", "_", re.sub(r"^include/", "", os.path.splitext(path)[0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="HEAD~1")
    parser.add_argument("--files-max", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("build_dir")
    args = parser.parse_args()

    root = os.getcwd()
    with open(os.path.join(args.build_dir, "compile_commands.json"), encoding="utf-8") as file:
        compiled = {os.path.relpath(entry["file"], root) for entry in json.load(file)}
    headers_alone = {path for path in compiled if path.startswith("build/") and "/headers/" in path}
    sources = {path for path in compiled if not path.startswith(("build/", ".."))}

    changed = None if args.all else changed_lines(args.base)
    if changed is None:
        chosen = sorted(sources | headers_alone)
        total = len(chosen)
    else:
        weights = {}
        for path, lines in changed.items():
            weights[key_of(path)] = weights.get(key_of(path), 0) + lines
        checked = {path for path in sources if not path.startswith(("tests/", "examples/"))}
        found = [path for path in checked | headers_alone if key_of(path) in weights]
        found.sort(key=lambda path: (-weights[key_of(path)], path))
        total = len(found)
        chosen = found[:args.files_max or None]
    print(f"clang-tidy: {len(chosen)} of {total} files", file=sys.stderr)
    for path in chosen:
        print("^" + re.escape(os.path.join(root, path)) + "$")


if __name__ == "__main__":
    main()
