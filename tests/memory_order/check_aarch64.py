#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the library compile for aarch64, without a warning?

usage: check_aarch64.py

Compiles the sources of src/, a unit for most folders, up to but not including code generation.
Leaves with 77 if there is no compiler for aarch64. That the order of memory holds there is the
business of check_code.py.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
COMPILER = "aarch64-linux-gnu-g++"
SKIPPED = 77
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion",
         "-Wno-interference-size", "-Wno-missing-field-initializers", "-Werror",
         "-Wno-subobject-linkage",  # a unit includes what is compiled alone elsewhere
         "-Isrc", "-Iinclude", "-idirafter", "/usr/include"]
# Their files are compiled one by one: they use names twice.
APART = ["src/fabric/sim", "src/fabric/faulty", "src/fabric/verbs", "src/testing"]
NEEDS = {"src/fabric/verbs": "/usr/include/infiniband/verbs.h"}


def compile_unit(paths):
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as unit:
        unit.writelines(f'#include "{path[4:]}"\n' for path in paths)
        unit.flush()
        done = subprocess.run([COMPILER, *FLAGS, unit.name], cwd=ROOT, capture_output=True,
                              text=True, check=False)
    if done.returncode != 0:
        print(done.stderr)
    return done.returncode == 0


def main():
    if shutil.which(COMPILER) is None:
        print(f"skipped: there is no {COMPILER} (Debian: g++-aarch64-linux-gnu)")
        return SKIPPED
    folders = {}
    for path in sorted(glob.glob("src/**/*.cc", root_dir=ROOT, recursive=True)):
        folders.setdefault(os.path.dirname(path), []).append(path)
    good = bool(folders)
    for folder, paths in sorted(folders.items()):
        if folder in NEEDS and not os.path.exists(NEEDS[folder]):
            print(f"{folder}: left out, no {NEEDS[folder]}")
            continue
        units = [[path] for path in paths] if folder in APART else [paths]
        ok = all([compile_unit(unit) for unit in units])
        print(f"{folder}: {len(paths)} files {'ok' if ok else 'FAILED'}", flush=True)
        good = good and ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
