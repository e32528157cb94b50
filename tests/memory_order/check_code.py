#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the fence of the end of a lease in the generated code?

usage: check_code.py MACHINE [--cxx COMPILER] [--library FILE]      MACHINE: x86_64 or aarch64

Compiles src/memory/lease_end.cc with the flags of the release build and disassembles `end_word`.
Asked of the code, on every way through it:
  * the word is changed by a read-modify-write;
  * after it, before the function returns, comes a full fence (x86-64: mfence or another locked
    instruction; aarch64: dmb ish), and no store in between.
Then it asks the same of mutants of the function, and must refuse each. With --library, the object
in this library of the host is checked too. Leaves with 77 if no compiler for MACHINE is there.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SOURCE = "src/memory/lease_end.cc"
SKIPPED = 77

CHANGE = """\
  std::uint64_t expected = generation;
  const bool won = word.bits_.compare_exchange_strong(
      expected, generation + 1, std::memory_order_acq_rel, std::memory_order_acquire);
"""
FENCE = "  std::atomic_thread_fence(std::memory_order_seq_cst);\n"
STORE = """\
  const bool won = word.bits_.load(std::memory_order_acquire) == generation;
  if (won) word.bits_.store(generation + 1, std::memory_order_release);
"""

# Name, and what stands in the place of CHANGE and FENCE. Each must be refused on each machine.
MUTANTS = [
    ("no_fence", CHANGE),
    ("fence_before_the_change", FENCE + CHANGE),
    ("fence_of_the_loser_only", CHANGE + "  if (!won)" + FENCE),
    ("fence_of_the_winner_only", CHANGE + "  if (won)" + FENCE),
    ("acquire_fence", CHANGE + FENCE.replace("seq_cst", "acquire")),
    ("seq_cst_change_without_fence",
     CHANGE.replace("acq_rel", "seq_cst").replace("order_acquire", "order_seq_cst")),
    ("store_before_the_fence",
     CHANGE + "  (&word)[1].store(0, std::memory_order_relaxed);\n" + FENCE),
    ("release_store", STORE),
    ("release_store_and_fence", STORE + FENCE),
]

# How aarch64 is compiled: load-exclusive and store-exclusive, one instruction, or a helper that
# picks one of the two at run time (the default of the compilers).
VARIANTS = {
    "x86_64": [[]],
    "aarch64": [["-mno-outline-atomics"], ["-march=armv8.1-a"], ["-moutline-atomics"]],
}


class Instruction:
    def __init__(self, address, text):
        self.address = address
        words = text.split(None, 1)
        self.name = words[0]
        self.operands = words[1] if len(words) > 1 else ""
        if self.name == "lock":
            self.name = "lock " + self.operands.split(None, 1)[0]
            self.operands = self.operands.split(None, 1)[1]
        self.symbol = None  # what a relocation calls or jumps to
        target = re.match(r"(?:.*[ ,])?(?:0x)?([0-9a-f]+) <", self.operands)
        self.target = int(target.group(1), 16) if target else None

    def __str__(self):
        return f"{self.name} {self.symbol or self.operands}".strip()


class X86:
    """AT&T syntax, as objdump prints it."""

    @staticmethod
    def memory(i):
        return re.search(r"\((%\w+)", i.operands)

    @classmethod
    def stack(cls, i):
        memory = cls.memory(i)
        return memory is not None and memory.group(1) in ("%rsp", "%rbp")

    @classmethod
    def changes_word(cls, i):
        return (i.name in ("lock cmpxchg", "lock cmpxchgq") and cls.memory(i) is not None
                and not cls.stack(i) and re.match(r"%r", i.operands) is not None)

    @classmethod
    def looks_at_word(cls, i):
        return cls.changes_word(i)

    @classmethod
    def full_fence(cls, i):
        return i.name == "mfence" or (i.name.startswith("lock ") and cls.stack(i))

    @classmethod
    def stores(cls, i):
        return (i.name.startswith("mov") and i.operands.endswith(")")
                and not i.operands.startswith("(") and not cls.stack(i))

    @staticmethod
    def returns(i):
        return re.match(r"(repz? )?retq?$", i.name) is not None

    @staticmethod
    def leaves(i):  # for code that is not in front of us
        return i.name.startswith("call") or (i.name.startswith("j") and "*" in i.operands)

    @staticmethod
    def jumps(i):
        return i.name.startswith("jmp")

    @staticmethod
    def branches(i):
        return i.name.startswith("j")


class Aarch64:
    HELPER = re.compile(r"__aarch64_cas8_(acq_rel|acq|rel|relax|sync)$")

    @staticmethod
    def base(i):
        memory = re.search(r"\[(\w+)", i.operands)
        return memory.group(1) if memory else None

    @classmethod
    def helper(cls, i):
        return i.name == "bl" and i.symbol is not None and cls.HELPER.match(i.symbol) is not None

    @classmethod
    def changes_word(cls, i):
        if cls.helper(i):
            return True
        if cls.base(i) in (None, "sp", "x29"):
            return False
        return (re.fullmatch(r"st(l?)xr", i.name) is not None and ", x" in i.operands) or (
            re.fullmatch(r"cas(a?)(l?)", i.name) is not None and i.operands.startswith("x"))

    @classmethod
    def looks_at_word(cls, i):
        return cls.changes_word(i) or re.fullmatch(r"ld(a?)xr", i.name) is not None

    @staticmethod
    def full_fence(i):
        return i.name == "dmb" and i.operands in ("ish", "sy")

    @classmethod
    def stores(cls, i):
        return (i.name.startswith("st") and not cls.changes_word(i)
                and cls.base(i) not in ("sp", "x29"))

    @staticmethod
    def returns(i):
        return i.name == "ret"

    @classmethod
    def leaves(cls, i):
        return i.name in ("bl", "blr", "br") and not cls.helper(i)

    @staticmethod
    def jumps(i):
        return i.name == "b"

    @staticmethod
    def branches(i):
        return re.match(r"(b(\.\w+)?|cbn?z|tbn?z)$", i.name) is not None


MACHINES = {"x86_64": X86, "aarch64": Aarch64}


def findings_of(machine, code):
    """What is wrong with a function, as sentences; none if it is as it has to be."""
    at = {instruction.address: n for n, instruction in enumerate(code)}
    findings = []

    def successors(n):
        i = code[n]
        if machine.branches(i):
            if i.symbol is not None or i.target not in at:
                return None
            ahead = [at[i.target]]
            return ahead if machine.jumps(i) else ahead + [n + 1]
        return [n + 1]

    def walk(start, what):
        """Every way from instruction `start` meets a full fence before the function is left."""
        ahead, seen = [start], set()
        while ahead:
            n = ahead.pop()
            if n in seen:
                continue
            seen.add(n)
            if n == len(code):
                findings.append(f"{what}: the end of the function is reached without a return")
                continue
            i = code[n]
            if machine.full_fence(i):
                continue
            if machine.returns(i):
                findings.append(f"{what}: a return without a full fence")
            elif machine.leaves(i) or successors(n) is None:
                findings.append(f"{what}: `{i}` leads to code that is not judged here")
            elif machine.stores(i):
                findings.append(f"{what}: a store before the fence (`{i}`)")
            else:
                ahead += successors(n)

    changes = [n for n, i in enumerate(code) if machine.changes_word(i)]
    if not changes:
        findings.append("no read-modify-write of the word")
    walk(0, "from the start")
    for n, i in enumerate(code):
        if machine.looks_at_word(i):
            walk(n + 1, f"after `{i}`")
    return list(dict.fromkeys(findings))


def disassemble(tool, path):
    """Function name (demangled, without parameters) -> instructions."""
    text = subprocess.run([tool, "-d", "-r", "-C", "--no-show-raw-insn", path],
                          capture_output=True, text=True, check=True).stdout
    functions, code = {}, None
    for line in text.split("\n"):
        head = re.match(r"[0-9a-f]+ <(?:[\w:]*::)?(\w+)\(.*>:$", line)
        if head:
            code = functions.setdefault(head.group(1), [])
            continue
        relocation = re.match(r"\s+[0-9a-f]+: (R_\w+)\s+(\S+)", line)
        if relocation and code:
            if re.search(r"CALL|JUMP|PLT|PC32|CONDBR", relocation.group(1)):
                code[-1].symbol = re.sub(r"[-+]0x[0-9a-f]+$", "", relocation.group(2))
            continue
        found = re.match(r"\s+([0-9a-f]+):\s+(\S.*)$", line)
        if found and code is not None:
            code.append(Instruction(int(found.group(1), 16),
                                    re.sub(r"\s+(//|# ).*$", "", found.group(2))))
    return functions


def tools_for(machine, cxx):
    """Pairs (compiler command, disassembler); the same compiler once."""
    host = os.uname().machine
    triple = f"{machine}-linux-gnu"
    package = f"g++-{triple.replace('_', '-')}"
    disassembler = "objdump" if machine == host else f"{triple}-objdump"
    if shutil.which(disassembler) is None:
        return [], f"{disassembler} is not installed (package {package})"
    native = [[name] for name in (cxx, "g++", "clang++-19") if name] if machine == host else []
    cross = [] if machine == host else [[f"{triple}-g++"], ["clang++-19", f"--target={triple}"]]
    commands, seen = [], set()
    for command in native + cross:
        path = shutil.which(command[0])
        if path is None or os.path.basename(path) in seen:
            continue
        seen.add(os.path.basename(path))
        # clang compiles for any machine, if the headers of that machine's library are there.
        probe = subprocess.run(command + ["-E", "-x", "c++", "-", "-o", os.devnull], text=True,
                               input="#include <atomic>\n", capture_output=True, check=False)
        if probe.returncode == 0:
            commands.append(command)
    return [(command, disassembler) for command in commands], f"no compiler (package {package})"


def release_flags():
    with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
        presets = json.load(file)["configurePresets"]
    base = next(p for p in presets if p["name"] == "base")["cacheVariables"]
    release = next(p for p in presets if p["name"] == "release")
    flags = {**base, **release["cacheVariables"]}["CMAKE_CXX_FLAGS_RELEASE"]
    return ["-std=c++20", "-fPIC", *flags.split()]


def mutants_source(source):
    """The source, and all mutants of its function: these take the bare atomic."""
    text = re.sub(r"//[^\n]*", "", source)
    function = re.search(r"bool end_word\(GenerationWord& word.*?\n}\n", text, re.S)
    if function is None or function.group(0).count(CHANGE + FENCE) != 1:
        sys.exit(f"{SOURCE} changed: bring the mutants of check_code.py in line with it")
    out = [f'#include "{ROOT}/{SOURCE}"\n']
    for name, body in MUTANTS:
        mutant = function.group(0).replace(CHANGE + FENCE, body)
        mutant = mutant.replace("end_word(GenerationWord&", f"{name}(std::atomic<std::uint64_t>&")
        out.append(mutant.replace("word.bits_.", "word."))
    return "\n".join(out)


def judge(machine, where, functions):
    """Prints one line for `end_word`; 1 if it is not as it has to be."""
    if "end_word" not in functions:
        print(f"{where}: no function end_word")
        return 1
    code = functions["end_word"]
    findings = findings_of(machine, code)
    shown = [str(i) for i in code if machine.looks_at_word(i) or machine.full_fence(i)]
    print(f"{where}: {'; '.join(shown)}: {'ok' if not findings else 'WRONG'}")
    for finding in findings:
        print(f"    {finding}")
    return 1 if findings else 0


def check_compiler(name, command, tool, folder):
    machine, failures = MACHINES[name], 0
    path, out = os.path.join(folder, "mutants.cc"), os.path.join(folder, "out.o")
    with open(os.path.join(ROOT, SOURCE), encoding="utf-8") as file:
        text = mutants_source(file.read())
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    for variant in VARIANTS[name]:
        where = " ".join(command + variant)
        subprocess.run([*command, *release_flags(), *variant, f"-I{ROOT}/include", f"-I{ROOT}/src",
                        "-c", "-o", out, path], check=True)
        functions = disassemble(tool, out)
        failures += judge(machine, where, functions)
        accepted = [mutant for mutant, _ in MUTANTS if not findings_of(machine, functions[mutant])]
        print(f"    {len(MUTANTS) - len(accepted)} of {len(MUTANTS)} mutants refused")
        for mutant in accepted:
            print(f"    mutant {mutant}: NOT REFUSED")
        failures += len(accepted)
    return failures


def check_library(name, tool, library, folder):
    if not os.path.exists(library):
        print(f"{library}: not built, not checked")
        return 0
    path = os.path.join(folder, "member.o")
    with open(path, "wb") as file:
        subprocess.run(["ar", "p", library, "lease_end.cc.o"], stdout=file, check=True)
    return judge(MACHINES[name], os.path.basename(library), disassemble(tool, path))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--cxx")
    parser.add_argument("--library")
    arguments = parser.parse_args()
    pairs, missing = tools_for(arguments.machine, arguments.cxx)
    if not pairs:
        print(f"SKIP: {arguments.machine}: {missing}")
        return SKIPPED
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for command, tool in pairs:
            failures += check_compiler(arguments.machine, command, tool, folder)
        if arguments.library:
            failures += check_library(arguments.machine, pairs[0][1], arguments.library, folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
