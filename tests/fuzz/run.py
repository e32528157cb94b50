#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--seconds N] [--jobs N] [--build DIR] [--merge] [TARGET...]: runs the fuzzers.

Each target runs for N seconds (20) from its corpus in
tests/fuzz/corpus; what it finds on the way goes into the build folder. Controls, programs with a
bug on purpose, must crash within their seconds. Prints a table. An input that ends a target is kept
in build/fuzz/crashes; the way to run it again is printed. --merge: what adds coverage goes into
tests/fuzz/corpus, which is minimised.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CORPUS = os.path.join(ROOT, "tests", "fuzz", "corpus")

INPUT_BYTES_MAX = {"connection": 1024, "frames": 4096, "descriptors": 4096, "handshake": 4200,
                   "metadata": 1024, "tickets": 320, "proto": 1024, "tcp_wire": 256,
                   "address": 320}
MEMORY_MIB_MAX = 1024  # of one fuzzer, sanitizers included
ALLOCATION_MIB_MAX = 64  # at once
INPUT_SECONDS_MAX = 20


def environment():
    values = dict(os.environ)
    values["ASAN_OPTIONS"] = "detect_stack_use_after_return=1:strict_string_checks=1"
    values["UBSAN_OPTIONS"] = "print_stacktrace=1"
    return values


def count(path):
    files = [entry for entry in os.scandir(path) if entry.is_file()] if os.path.isdir(path) else []
    return len(files), sum(entry.stat().st_size for entry in files)


class Run:
    """One fuzzer for some seconds."""

    def __init__(self, build, program, seconds):
        self.program = program
        self.control = program.startswith("control_")
        self.target = program.split("_", 1)[1]
        self.path = os.path.join(build, "bin", program)
        self.found = os.path.join(build, "found", self.target)
        self.crashes = os.path.join(build, "crashes")
        self.seconds = seconds
        self.output = ""

    def options(self):
        return [f"-max_len={INPUT_BYTES_MAX[self.target]}", f"-rss_limit_mb={MEMORY_MIB_MAX}",
                f"-malloc_limit_mb={ALLOCATION_MIB_MAX}", f"-timeout={INPUT_SECONDS_MAX}"]

    def go(self):
        os.makedirs(self.crashes, exist_ok=True)
        # A control starts from nothing but the seeds, and leaves nothing.
        own = tempfile.mkdtemp() if self.control else self.found
        os.makedirs(own, exist_ok=True)
        prefix = os.path.join(own if self.control else self.crashes, self.program + "-")
        command = [self.path, *self.options(), f"-max_total_time={self.seconds}",
                   "-print_final_stats=1", f"-artifact_prefix={prefix}", own,
                   os.path.join(CORPUS, self.target)]
        run = subprocess.run(command, env=environment(), text=True, errors="replace", check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output = run.stdout
        self.crashed = run.returncode != 0
        if self.control:
            shutil.rmtree(own)
        return self

    @property
    def ok(self):
        return self.crashed == self.control

    def number(self, pattern):
        found = re.findall(pattern, self.output)
        return int(found[-1]) if found else 0

    def row(self):
        executions = self.number(r"stat::number_of_executed_units: +(\d+)")
        executions = executions or self.number(r"^#(\d+)")
        files, size = count(os.path.join(CORPUS, self.target))
        found = "the bug was found" if self.control else "ok"
        missed = "THE BUG WAS NOT FOUND" if self.control else "FAILED"
        return (f"{self.program:20} {executions:>10} "
                f"{self.number(r'stat::average_exec_per_sec: +([0-9]+)'):>8} "
                f"{self.number(r'cov: ([0-9]+)'):>8} {files:>6} {size / 1024:>7.0f}K  "
                f"{found if self.ok else missed}")

    def explain(self):
        print(f"\n== {self.program}\n" + "\n".join(self.output.split("\n")[-60:]))
        for kept in re.findall(r"Test unit written to (\S+)", self.output):
            print(f"{self.program}: run it again with\n  {self.path} {kept}\n"
                  f"  build/debug/bin/test_fuzz {self.target} {kept}")

    def merge(self):
        """A small set of inputs with all the coverage of corpus and found. Seeds stay."""
        os.makedirs(self.found, exist_ok=True)
        corpus = os.path.join(CORPUS, self.target)
        with tempfile.TemporaryDirectory() as fresh:
            command = [self.path, *self.options(), "-set_cover_merge=1"]
            subprocess.run([*command, fresh, corpus, self.found],
                           env=environment(), check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            for path in glob.glob(os.path.join(corpus, "*")):
                if not os.path.basename(path).startswith(("seed_", "found_")):
                    os.remove(path)
            kept = {open(path, "rb").read() for path in glob.glob(os.path.join(corpus, "*"))}
            for path in glob.glob(os.path.join(fresh, "*")):
                with open(path, "rb") as file:
                    if file.read() not in kept:
                        shutil.copy(path, corpus)
        files, size = count(corpus)
        print(f"{self.target}: {files} inputs, {size} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "fuzz"))
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("targets", nargs="*")
    args = parser.parse_args()

    programs = sorted(os.path.basename(path)
                      for pattern in ("fuzz_*", "control_*")
                      for path in glob.glob(os.path.join(args.build, "bin", pattern)))
    if args.targets:
        programs = [name for name in programs if name in args.targets
                    or name.split("_", 1)[1] in args.targets and not name.startswith("control_")]
    if not programs:
        sys.exit("no fuzzers: cmake --preset fuzz && cmake --build --preset fuzz")
    runs = [Run(args.build, name, args.seconds) for name in programs]
    if args.merge:
        for run in runs:
            if not run.control:
                run.merge()
        return
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(Run.go, runs))
    for run in done:
        if not run.ok:
            run.explain()
    print(f"\n{'program':20} {'executions':>10} {'a second':>8} {'edges':>8} {'corpus':>6} "
          f"{'size':>8}  result")
    for run in done:
        print(run.row())
    failed = sum(not run.ok for run in done)
    print(f"fuzz: {len(done)} programs of {args.seconds} s, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
