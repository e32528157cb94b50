#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One function ends a lease. The type `GenerationWord` keeps its value private, so the compiler
refuses all other ways to change it. This looks at what the compiler cannot: that the type has the
one friend, that the friend is defined where the check of generated code looks, and that only the
table of leases makes words out of raw memory. It does not see a store through a pointer to bytes.
"""
import re

import files

TYPE = "src/memory/generation_word.h"
END = "src/memory/lease_end.cc"
TABLE = ("src/memory/lease_table.h", "src/memory/lease_table.cc")
RAW = re.compile(r"(reinterpret_cast|static_cast|const_cast|bit_cast)\s*<[^<>]*GenerationWord"
                 r"|new\s*\([^;]*\)\s*(memory::)?GenerationWord"
                 r"|\(\s*GenerationWord\s*[*&]\s*\)")


def lines_of(pattern, text):
    return [text.count("\n", 0, found.start()) + 1 for found in pattern.finditer(text)]


def main():
    findings = []
    code = files.without_comments(files.read(TYPE))
    if code.count("friend") != 1 or "friend bool end_word(" not in code:
        findings.append(f"{TYPE}:1: the one friend of GenerationWord is end_word")
    changes = re.findall(r"\bbits_(?:\.(\w+)|\s*=)", code)
    if sorted(set(changes)) != ["load", "store"] or changes.count("store") != 2:
        findings.append(f"{TYPE}:1: start and lend are the two stores to bits_")
    end = files.without_comments(files.read(END))
    if end.count("bits_") != 1 or "bits_.compare_exchange_strong(" not in end:
        findings.append(f"{END}:1: the end is one compare-and-swap")
    for path in files.repository_files():
        if not files.is_cpp(path) or not path.startswith(("src/", "include/")):
            continue
        text = files.without_comments(files.read(path))
        if path != END:
            for line in lines_of(re.compile(r"\bbool\s+(\w+::)*end_word\s*\([^;{]*\{"), text):
                findings.append(f"{path}:{line}: end_word is defined in {END}")
        if path not in TABLE:
            for line in lines_of(RAW, text):
                findings.append(f"{path}:{line}: only the table of leases makes words of memory")
    files.finish("generations", findings)


if __name__ == "__main__":
    main()
