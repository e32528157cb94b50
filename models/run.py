#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models: each is searched exhaustively, and each mutant must yield its counterexample.

usage: run.py [--full] [--keep FOLDER] [NAME ...]

Without --full (or PAWL_TEST_SOAK=1 in the environment) the bounds are smaller. NAME: only rows
whose name contains it. --keep: leaves the sources, verifiers and counterexamples there. Exit
status: 0 as expected, 1 not, 77 if spin or a C compiler is not installed. README.md says what the
rows mean.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_MB_MAX = 6000
DEPTH_MAX = 20000
SECONDS_MAX = 1800
# COLLAPSE compresses states without loss; nothing here approximates.
PAN_FLAGS = ["-DCOLLAPSE", "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY_MB_MAX}"]

ONE = "-DPEERS=1 -DCONCURRENT"
# name, model, bounds, only with --full
MODELS = [
    ("download, two calls at a time", "download", ONE, False),
    ("download, data endpoint lost", "download", f"{ONE} -DENDPOINT_LOSSES=1", False),
    ("download, connection lost", "download", f"{ONE} -DLOSSES=1", False),
    ("download, callee restarts", "download", f"{ONE} -DRESTARTS=1 -DKEEP_TRANSFERS", False),
    ("download, two peers", "download", "-DPEERS=2 -DCALLS=1", False),
    ("download, two peers, three calls", "download", "-DPEERS=2 -DCALLS_1=1", True),
    ("download, two callers, one connection", "download",
     "-DPEERS=2 -DCALLS_1=1 -DONE_CONNECTION", True),
    ("upload, two pulls", "upload", "-DPULLS_1=0", False),
    ("upload, two pulls, then one", "upload", "-DPULLS_1=1", True),
    ("upload, two buffers", "upload", "-DPULLS=1 -DBUFS=2", True),
    ("upload, connection lost", "upload", "-DPULLS=1 -DLOSSES=1", True),
    ("upload, connection lost, one call", "upload", "-DCALLS=1 -DPULLS=1 -DLOSSES=1", False),
    ("upload, hold_until_ack", "upload", "-DHOLD -DPULLS=1", False),
    ("upload, hold_until_ack, two pulls", "upload", "-DHOLD -DBUFS=2", True),
    ("shared block, reused once", "shared", "-DREUSES=1", False),
    ("shared block, both reused", "shared", "-DREUSES=2", True),
    ("shared block, lent twice", "shared", "-DREUSES=1 -DROUNDS=2", True),
]
# Searched for cycles, with --full: no run goes on for ever.
CYCLES = [
    ("download, cycles", "download", ONE),
    ("upload, cycles", "upload", "-DHOLD -DPULLS=1"),
    ("shared block, cycles", "shared", "-DREUSES=1"),
]
# macro without MUTANT_, model, bounds, what the assertion that fails is about
MUTANTS = [
    ("NO_CONFIRM", "download", ONE, "landing"),
    ("EARLY_CONFIRM", "download", ONE, "landing"),
    ("END_AFTER_FREE", "download", ONE, "landing"),
    ("GENERATION_IGNORED", "download", ONE, "landing"),
    ("LANDING_AT_TIMEOUT", "download", ONE, "landing_of"),
    ("RETRY_BEFORE_COMPLETION", "download", f"{ONE} -DENDPOINT_LOSSES=1", "landing_of"),
    ("EPOCH_IGNORED", "download", f"{ONE} -DRESTARTS=1 -DKEEP_TRANSFERS", "landing"),
    ("ANSWER_BY_LEASE", "upload", "-DPULLS_1=0", "landing"),
    ("ANSWER_WHILE_READING", "upload", "-DHOLD -DPULLS=1", "content"),
    ("HOLD_WITHOUT_CANCEL", "upload", "-DHOLD -DPULLS=1", "refs"),
    ("SEGMENT_WORD_IGNORED", "shared", "-DREUSES=1", "landing"),
    ("ADMIT_UNCHECKED", "shared", "-DREUSES=1", "landing"),
    ("ONE_LEASE_WITHDRAWN", "shared", "-DREUSES=2", "landing"),
    ("REUSE_BEFORE_WITHDRAWAL", "shared", "-DREUSES=1", "landing"),
]


class Search:
    """One search: what pan said, and whether it was complete."""

    def __init__(self, folder, model, bounds, optimize, cycles=False):
        self.problem = ""
        for name in os.listdir(HERE):
            if name.endswith(".pml"):
                shutil.copy(os.path.join(HERE, name), folder)
        source = f"{model}.pml"
        commands = [["spin", "-a"] + bounds.split() + [source],
                    [COMPILER, optimize, "-w", "-DNP" if cycles else "-DSAFETY"] + PAN_FLAGS
                    + ["-o", "pan", "pan.c"],
                    ["./pan", f"-m{DEPTH_MAX}", "-w22"] + (["-l"] if cycles else [])]
        before = os.times()
        for command in commands:
            try:
                run = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                                     check=False, timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.problem = f"{command[0]} took longer than {SECONDS_MAX} s"
                break
            if run.returncode != 0 and command[0] != "./pan":
                self.problem = (run.stdout + run.stderr).strip().split("\n")[0]
                break
        after = os.times()
        self.seconds = (after.children_user + after.children_system
                        - before.children_user - before.children_system)
        output = "" if self.problem else run.stdout
        self.states = self.number(r"(\d+) states, stored", output)
        self.transitions = self.number(r"(\d+) transitions", output)
        self.depth = self.number(r"depth reached (\d+)", output)
        self.errors = self.number(r"errors: (\d+)", output)
        said = re.search(r"^pan:\d+: (.*)$", output, re.M)
        self.said = said.group(1) if said else ""
        if not self.problem:
            self.check_complete(output)
        self.unreached = set(re.findall(r"^\s(\w+\.pml:\d+), state \d+, (?!\"-end-\")", output,
                                        re.M))

    @staticmethod
    def number(pattern, output):
        found = re.search(pattern, output)
        return int(found.group(1)) if found else 0

    def check_complete(self, output):
        incomplete = ["out of memory", "max search depth too small", "VECTORSZ"]
        if not self.errors:  # a counterexample ends its search
            incomplete.append("Search not completed")
        for sign in incomplete:
            if sign in output:
                self.problem = f"the search is not complete: {sign}"
        if "errors:" not in output:
            self.problem = "the verifier did not finish"


def row(name, search, result):
    print(f"{name:<40} {search.states:>9} {search.transitions:>10} {search.depth:>6} "
          f"{search.seconds:>7.1f}  {result}", flush=True)


def search_in(args, name, *how):
    if args.keep:
        folder = os.path.join(args.keep, re.sub(r"\W+", "-", name))
        os.makedirs(folder, exist_ok=True)
        return Search(os.path.abspath(folder), *how)
    with tempfile.TemporaryDirectory() as folder:
        return Search(folder, *how)


def run_models(args):
    """The rows of MODELS: how many are wrong, and what no row of a model reached."""
    wrong, unreached = 0, {}
    for name, model, bounds, only_full in MODELS:
        if (only_full and not args.full) or not wanted(args, name):
            continue
        search = search_in(args, name, model, bounds, "-O1" if args.full else "-O0")
        ok = not search.problem and search.errors == 0
        wrong += not ok
        row(name, search, "no error" if ok else search.problem or f"ERROR: {search.said}")
        unreached[model] = unreached.get(model, search.unreached) & search.unreached
    for name, model, bounds in CYCLES if args.full else []:
        if wanted(args, name):
            search = search_in(args, name, model, bounds, "-O1", True)
            ok = not search.problem and search.errors == 0
            wrong += not ok
            row(name, search, "no cycle" if ok else search.problem or f"ERROR: {search.said}")
    return wrong, unreached


def run_mutants(args):
    wrong = 0
    for macro, model, bounds, about in MUTANTS:
        if not wanted(args, macro):
            continue
        search = search_in(args, macro, model, f"{bounds} -DMUTANT_{macro}", "-O0")
        expected = re.match(rf"assertion violated \(+{about}\[", search.said)
        ok = not search.problem and search.errors > 0 and expected
        wrong += 0 if ok else 1
        row(f"{model}, mutant {macro}", search,
            "counterexample: " + search.said.replace("assertion violated ", "") if ok
            else search.problem or f"NO COUNTEREXAMPLE {search.said}")
    return wrong


def wanted(args, name):
    return not args.names or any(part in name for part in args.names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true",
                        default=os.environ.get("PAWL_TEST_SOAK") == "1")
    parser.add_argument("--keep")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    print(f"{'model':<40} {'states':>9} {'transitions':>10} {'depth':>6} {'cpu s':>7}  result")
    started = time.monotonic()
    wrong, unreached = run_models(args)
    wrong += run_mutants(args)
    if not args.names:
        for model, lines in unreached.items():
            for line in sorted(lines):
                print(f"{line}: no row of {model} takes a step of this line")
                wrong += 1
    print(f"{time.monotonic() - started:.0f} s, {wrong} not as expected")
    sys.exit(1 if wrong else 0)


COMPILER = shutil.which("gcc") or shutil.which("cc")
if __name__ == "__main__":
    if shutil.which("spin") is None:
        print("SKIP: spin is not installed (Debian package spin; scripts/setup.sh ci installs it)")
        sys.exit(77)
    if COMPILER is None:
        print("SKIP: there is no C compiler for spin's verifiers")
        sys.exit(77)
    main()
