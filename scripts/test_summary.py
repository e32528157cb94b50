#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what ctest's JUnit files say: skips by reason, failures with the end of what they printed,
and one last line.

    test_summary.py [--checks-passed N] [--checks-failed N] [--failed-step NAME]... JUNIT_FILE...

The last line is `N passed, N failed, N skipped`. Checks are steps that are not tests of ctest.
A file that should exist and does not counts as one failure. Failures come last, because a page that
shows only the end of a log is read for them; every name stands in the JUnit files.
"""
import argparse
import re
import sys
import xml.etree.ElementTree as xml

LINES_OF_A_FAILURE = 25
FAILURES_WITH_OUTPUT = 5


def skip_reason(case):
    """What the test printed about it: GTEST_SKIP() << reason, or a script's `SKIP: reason`."""
    output = case.findtext("system-out") or ""
    found = re.search(r"^SKIP: (.+)$", output, re.M)
    if found:
        return found.group(1)
    found = re.search(r": Skipped\n(.*?)\n*^\[  SKIPPED \]", output, re.M | re.S)
    if found and found.group(1).strip():
        return " ".join(found.group(1).split())
    skipped = case.find("skipped")
    message = skipped.get("message") if skipped is not None else None
    return message or "no reason was given"


def read(path):
    """Names that passed, pairs (name, output) that failed, and pairs (name, reason) left out."""
    passed, failed, skipped = [], [], []
    for case in xml.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        status = case.get("status")
        if status == "run" and case.find("failure") is None:
            passed.append(name)
        elif status == "notrun" and "SKIP" in (case.find("skipped").get("message") or ""):
            skipped.append((name, skip_reason(case)))
        elif status == "disabled":
            skipped.append((name, "disabled"))
        else:
            failed.append((name, case.findtext("system-out") or ""))
    return passed, failed, skipped


def print_skipped(skipped):
    by_reason = {}
    for name, reason in skipped:
        # What a parametrized test was run with is in its name.
        reason = re.sub(r"^# GetParam\(\) = \S+: ", "", reason)
        by_reason.setdefault(reason, []).append(name)
    for reason, names in sorted(by_reason.items(), key=lambda item: len(item[1])):
        others = f" and {len(names) - 1} others" if len(names) > 1 else ""
        print(f"skipped: {names[0]}{others}: {reason}")


def print_failed(failed):
    for number, (name, output) in enumerate(failed):
        print(f"failed: {name}")
        if number < FAILURES_WITH_OUTPUT:
            for line in output.rstrip().splitlines()[-LINES_OF_A_FAILURE:]:
                print(f"    {line}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checks-passed", type=int, default=0)
    parser.add_argument("--checks-failed", type=int, default=0)
    parser.add_argument("--failed-step", action="append", default=[])
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()

    passed, failed, skipped = args.checks_passed, [], []
    missing = 0
    for path in args.files:
        try:
            ok, bad, left_out = read(path)
        except (OSError, xml.ParseError) as error:
            print(f"no test results: {error}")
            missing += 1
            continue
        of = re.sub(r"^junit-|\.xml$", "", path.rsplit("/", 1)[-1])
        passed += len(ok)
        failed += [(f"{name} ({of})", output) for name, output in bad]
        skipped += left_out
    print_skipped(skipped)
    print_failed(failed)
    for step in args.failed_step:
        print(f"failed: step {step}")
    failures = len(failed) + missing + args.checks_failed
    print(f"{passed} passed, {failures} failed, {len(skipped)} skipped")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
