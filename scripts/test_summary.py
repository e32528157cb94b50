#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what ctest's JUnit files say: failures, skips with their reasons, and one last line.

    test_summary.py [--checks-passed N] [--checks-failed N] JUNIT_FILE...

The last line is `N passed, N failed, N skipped`. Checks are steps that are not tests of ctest.
A file that should exist and does not counts as one failure.
"""
import argparse
import re
import sys
import xml.etree.ElementTree as xml


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
    """Lists of names that passed, failed, and pairs (name, reason) that were skipped."""
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
            failed.append(name)
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checks-passed", type=int, default=0)
    parser.add_argument("--checks-failed", type=int, default=0)
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()

    passed, failed, skipped = args.checks_passed, args.checks_failed, 0
    for path in args.files:
        try:
            ok, bad, left_out = read(path)
        except (OSError, xml.ParseError) as error:
            print(f"no test results: {error}")
            failed += 1
            continue
        for name in bad:
            print(f"failed: {name}")
        for name, reason in left_out:
            print(f"skipped: {name}: {reason}")
        passed, failed, skipped = passed + len(ok), failed + len(bad), skipped + len(left_out)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
