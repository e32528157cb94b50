#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrows between layers point one way. Reads every #include of the repository.

A public header (include/pawl/x.h) belongs to the layer named for it in PUBLIC_HEADERS, else to that
of src/<layer>/x.cc or .h, else to the highest layer that it includes.
"""
import functools
import os
import re

import files

# Layer -> what it may include besides itself, and all that these may include.
ARROWS = {
    "base": [],
    "runtime": ["base"],
    "memory": ["runtime"],
    "fabric": ["memory"],                 # the interface: src/fabric/*
    "fabric/verbs": ["fabric"],
    "fabric/tcp": ["fabric"],
    "fabric/sim": ["fabric"],
    "fabric/faulty": ["fabric"],          # a decorator over any of them, through the interface
    "guard": ["fabric"],
    "flow": ["fabric"],
    "bulk": ["guard", "flow"],
    "rpc": ["bulk"],
    "wiring": ["rpc", "fabric/verbs", "fabric/tcp", "fabric/sim", "fabric/faulty"],
    "testing": ["wiring"],
    "proto": ["rpc"],
    "codegen": ["proto"],
    "tools": ["proto", "testing"],
}

# Files of src/rpc that put a node together may name the fabrics.
WIRING = re.compile(r"^src/rpc/(node|system_fabric)[a-z_]*\.cc$")

PUBLIC_HEADERS = {
    "base": "version status priority result time log guard detail/check detail/ref",
    "runtime": "block deadline operation poller task task_group timer when workers detail/awaiter "
               "detail/frame detail/ok detail/operation_core detail/task_promise "
               "detail/status_value detail/thread_context",
    "memory": "buffer memory_kind pool region stats",
    "bulk": "bulk",
    "rpc": "call channel node payload service",
    "testing": "testing pawl",            # pawl.h would be the one that includes everything
}
PUBLIC_LAYERS = {f"pawl/{name}.h": layer for layer, names in PUBLIC_HEADERS.items()
                 for name in names.split()}

# Libraries from outside: the folders that may include them.
OUTSIDE = [
    (re.compile(r"^infiniband/"), ("src/fabric/verbs/", "tools/doctor", "tests/verbs/"),
     "only the verbs fabric, its tests and the doctor may"),
    (re.compile(r"^rdma/"), ("src/fabric/verbs/", "tools/doctor", "tests/verbs/"),
     "only the verbs fabric, its tests and the doctor may"),
    (re.compile(r"^google/protobuf/"),
     ("proto/", "include/pawl/proto/", "codegen/", "tools/", "tests/", "examples/", "bench/"),
     "the core does not know protobuf"),
    (re.compile(r"^(fmt|CLI|toml\+\+|toml)(/|\.)"), ("tools/", "bench/", "tests/"),
     "only tools use it"),
    (re.compile(r"^(gtest|gmock)/"), ("tests/",), "only tests use it"),
    (re.compile(r"^(isa-l|isa-l\.h)"), ("src/", "tests/", "bench/"), "only the core uses it"),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
GENERATED = re.compile(r"\.(pb|pawl)\.h$")


def closure():
    allowed = {}

    def visit(layer):
        if layer not in allowed:
            allowed[layer] = {layer}
            for below in ARROWS[layer]:
                allowed[layer] |= visit(below)
        return allowed[layer]
    for layer in ARROWS:
        visit(layer)
    return allowed


ALLOWED = closure()
FILES = [path for path in files.repository_files() if files.is_cpp(path)]
KNOWN = set(FILES)


@functools.lru_cache(maxsize=None)
def includes(path):
    """Triples (line, '<' or '"', name)."""
    text = files.read(path)
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1), m.group(2))
            for m in INCLUDE.finditer(text)]


def resolve(path, name):
    """The file of the repository that `name` means in `path`, or None."""
    folders = ("include", "src", os.path.dirname(path), "tests", ".")
    for candidate in (os.path.normpath(os.path.join(folder, name)) for folder in folders):
        if candidate in KNOWN:
            return candidate
    return None


def source_layer(path):
    """The layer of a file outside include/, or None where no arrow is checked."""
    if WIRING.match(path):
        return "wiring"
    parts = path.split("/")
    if parts[0] == "src":
        nested = "/".join(parts[1:3])
        return nested if nested in ARROWS else parts[1] if len(parts) > 2 else None
    return parts[0] if parts[0] in ("proto", "codegen", "tools") else None


def named_layer(path):
    """The layer of a file by its own path, or None."""
    if not path.startswith("include/"):
        return source_layer(path)
    name = path[len("include/"):]
    if name in PUBLIC_LAYERS:
        return PUBLIC_LAYERS[name]
    if name.startswith("pawl/proto/"):
        return "proto"
    stem = os.path.splitext(os.path.basename(path))[0]
    beside = {source_layer(other) for other in FILES if other.startswith("src/")
              and os.path.splitext(os.path.basename(other))[0] == stem}
    if len(beside) == 1:
        layer = beside.pop()
        return "rpc" if layer == "wiring" else layer
    return None


@functools.lru_cache(maxsize=None)
def layer_of(path):
    layer = named_layer(path)
    if layer or not path.startswith("include/"):
        return layer
    reached, ahead = {path}, [path]
    while ahead:
        here = ahead.pop()
        for target in (resolve(here, name) for _, _, name in includes(here)):
            if target and target not in reached:
                reached.add(target)
                ahead.append(target)
    below = [named_layer(other) for other in reached]
    return max((l for l in below if l in ARROWS), key=lambda l: len(ALLOWED[l]), default="base")


def cycles():
    """One finding for each ring of includes."""
    findings, state = [], {}

    def visit(path, trail):
        state[path] = "open"
        for line, _, name in includes(path):
            target = resolve(path, name)
            if state.get(target) == "open":
                ring = trail[trail.index(target):] + [target]
                findings.append(f"{path}:{line}: a ring of includes: " + " -> ".join(ring))
            elif target and target not in state:
                visit(target, trail + [target])
        state[path] = "done"
    for path in FILES:
        if path not in state:
            visit(path, [path])
    return findings


def check_public(path, line, bracket, name):
    where = f"{path}:{line}"
    proto = path.startswith("include/pawl/proto/")
    if bracket == "<":
        if re.fullmatch(r"[a-z0-9_]+", name) or (proto and name.startswith("google/protobuf/")):
            return None
        return f"{where}: <{name}>: public headers include only the standard library and pawl"
    if not name.startswith("pawl/"):
        return f'{where}: "{name}": public headers include only "pawl/..." and the standard library'
    target = resolve(path, name)
    if target is None and not (proto and GENERATED.search(name)):
        return f'{where}: "{name}" is no public header'
    return None


def check_include(path, line, bracket, name):
    where = f"{path}:{line}"
    for pattern, folders, why in OUTSIDE:
        if pattern.match(name) and not path.startswith(folders):
            return f"{where}: {name}: {why}"
    if path.startswith("include/"):
        finding = check_public(path, line, bracket, name)
        if finding:
            return finding
    if bracket == "<" or GENERATED.search(name):
        return None
    target = resolve(path, name)
    if target is None:
        return f'{where}: "{name}" is not there; paths start at include/ or src/'
    if path.startswith("examples/") and not target.startswith(("include/", "examples/")):
        return f'{where}: "{name}": examples use public headers only'
    own, other = layer_of(path), layer_of(target)
    if own is None or other is None:
        return None
    if other not in ALLOWED[own]:
        return f'{where}: "{name}": layer {own} may not include layer {other}'
    return None


def main():
    findings = cycles()
    for path in FILES:
        parts = path.split("/")
        if parts[0] == "src" and len(parts) > 2:
            layer = source_layer(path)
            if layer not in ARROWS:
                findings.append(f"{path}:1: unknown folder src/{parts[1]}: name its layer in "
                                "tests/tidy/check_layers.py and src/CMakeLists.txt")
                continue
        for line, bracket, name in includes(path):
            finding = check_include(path, line, bracket, name)
            if finding:
                findings.append(finding)
    files.finish("layers", findings,
                 "The arrows are in tests/tidy/check_layers.py; move the code, not the arrow.")


if __name__ == "__main__":
    main()
