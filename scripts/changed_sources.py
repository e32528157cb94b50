#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""changed_sources.py [--base COMMIT] [--all] BUILD_DIR: files for clang-tidy, one regex a line.

Those of compile_commands.json that changed since the merge base with COMMIT (HEAD~1 by default),
committed or not. A changed header stands for the .cc beside it, and for the file that compiles it
alone.
"""
import argparse
import json
import os
import re
import subprocess
import sys


def git(*arguments):
    run = subprocess.run(("git",) + arguments, capture_output=True, text=True, check=False)
    return run.stdout.split() if run.returncode == 0 else None


def changed_files(base):
    merge_base = git("merge-base", "HEAD", base)
    if not merge_base:
        return None
    files = git("diff", "--name-only", "--diff-filter=d", merge_base[0]) or []
    return files + (git("ls-files", "--others", "--exclude-standard") or [])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="HEAD~1")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("build_dir")
    args = parser.parse_args()

    root = os.getcwd()
    with open(os.path.join(args.build_dir, "compile_commands.json"), encoding="utf-8") as file:
        compiled = sorted({os.path.normpath(entry["file"]) for entry in json.load(file)})
    own = [path for path in compiled if not path.startswith(os.path.join(root, "build"))]
    changed = None if args.all else changed_files(args.base)
    if changed is None:
        print("clang-tidy: all files", file=sys.stderr)
        chosen = own
    else:
        stems = {os.path.join(root, os.path.splitext(path)[0]) for path in changed}
        alone = {
            re.sub(r"[^A-Za-z0-9]", "_", path[len("include/"):]) + ".cc"
            for path in changed
            if path.startswith("include/")
        }
        chosen = [path for path in own if os.path.splitext(path)[0] in stems]
        chosen += [path for path in compiled if os.path.basename(path) in alone]
    for path in chosen:
        print("^" + re.escape(path) + "$")


if __name__ == "__main__":
    main()
