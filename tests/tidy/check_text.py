#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Licence line, line length, tabs and blanks, and no clock or sleep outside of the clock file."""
import re

import files

COLUMNS_MAX = 100
LICENCE = "SPDX-License-Identifier: Apache-2.0"
SOURCES = (".cc", ".h", ".proto", ".py", ".sh", ".cmake", "CMakeLists.txt")
SCRIPTS = ("run", "test", ".ci/run")

# Time is injected: nothing in the core, and no test that runs in virtual time, asks for it.
CLOCK_FILE = "src/base/clock.cc"
CLOCK_FOLDERS = ("src/", "include/", "tests/unit/", "tests/protocol/", "tests/sim/",
                 "tests/conformance/")
CLOCKS = [
    (re.compile(r"\bthis_thread::sleep_(for|until)\b"), "sleeps"),
    (re.compile(r"\b(usleep|nanosleep|clock_nanosleep)\b"), "sleeps"),
    (re.compile(r"(?<!\w)::sleep\s*\(|(?<![\w.:>])sleep\s*\(\s*\d"), "sleeps"),
    (re.compile(r"\b(steady_clock|high_resolution_clock)::now\b"), "reads a clock"),
    (re.compile(r"\bsystem_clock\b"), "uses the wall clock"),
    (re.compile(r"\b(clock_gettime|gettimeofday|timespec_get|__rdtsc)\b"), "reads a clock"),
    (re.compile(r"(?<![\w.:>])(std::|::)?time\s*\(\s*(nullptr|NULL|0)\s*\)"), "reads a clock"),
]
CLOCK_EXCEPTION = "// clock-ok:"  # with a reason, on the same line


def check_licence(path, lines):
    first = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= first or LICENCE not in lines[first]:
        return [f"{path}:{first + 1}: the line `{LICENCE}` is missing"]
    return []


def check_lines(path, lines):
    findings = []
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and not re.search(r"https?://\S{60,}", line):
            findings.append(f"{path}:{number}: {len(line)} columns, the limit is {COLUMNS_MAX}")
        if "\t" in line:
            findings.append(f"{path}:{number}: a tab")
        if line != line.rstrip():
            findings.append(f"{path}:{number}: blanks at the end")
    return findings


def check_clock(path, text, lines):
    if not files.is_cpp(path) or not path.startswith(CLOCK_FOLDERS) or path == CLOCK_FILE:
        return []
    findings = []
    for number, line in enumerate(files.without_comments(text).split("\n"), 1):
        if number <= len(lines) and CLOCK_EXCEPTION in lines[number - 1]:
            continue
        for pattern, what in CLOCKS:
            found = pattern.search(line)
            if found:
                findings.append(f"{path}:{number}: {found.group(0).strip()} {what}: "
                                "take the time from the injected clock")
    return findings


def main():
    findings = []
    for path in files.repository_files():
        if not path.endswith(SOURCES) and path not in SCRIPTS:
            continue
        text = files.read(path)
        lines = text.split("\n")
        findings += check_licence(path, lines)
        findings += check_lines(path, lines)
        findings += check_clock(path, text, lines)
    files.finish("text", findings)


if __name__ == "__main__":
    main()
