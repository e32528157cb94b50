#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""seeds.py [FOLDER]: writes the seeds of the corpora, seed_* in FOLDER/<target>/, by default
tests/fuzz/corpus. Bytes of the wire are those of the golden tests in tests/protocol.
"""
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROTOCOL = os.path.join(HERE, "..", "protocol")


def hex_runs(name):
    """Strings of hex in a source file, those that stand side by side joined, as bytes."""
    with open(os.path.join(PROTOCOL, name), encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    runs = []
    for run in re.findall(r'(?:"[0-9a-f ]+"\s*)+', text):
        digits = "".join(re.findall(r"[0-9a-f]", run))
        if len(digits) >= 16 and len(digits) % 2 == 0:
            runs.append(bytes.fromhex(digits))
    return runs


def handshakes():
    runs = hex_runs("handshake_test.cc")
    whole = [run for run in runs if run.startswith(b"PAWL")]
    tails = [run for run in runs if run.startswith(b"\x08\x80")]
    return whole + [whole[0] + tail for tail in tails]


def split_golden():
    """Frames and messages of the golden test."""
    runs = hex_runs("wire_golden_test.cc")
    frames = [run for run in runs if len(run) == 16 + int.from_bytes(run[4:8], "little")]
    messages = [run for run in runs if len(run) == 32 + int.from_bytes(run[4:8], "little")
                and run not in frames]
    return frames, messages


def message_of(frames):
    body = b"".join(frames)
    return struct.pack("<BBHIIIQQ", 1, 0, len(frames), len(body), 0, 0, 0, 0) + body


def body_seed(frame):
    """As fuzz_frames.cc takes one body apart."""
    kind, flags, attempt = struct.unpack_from("<BBH", frame)
    return struct.pack("<BBBHB", 0, kind, flags, attempt, 8) + frame[8:]


def descriptors(frames):
    """As fuzz_descriptors.cc takes an input apart: kind, payload, lease, a choice, segments."""
    seeds = []
    for frame, at, count in ((frames[0], 16 + 32 + 25 + 9, 1), (frames[1], 16 + 32 + 7, 3)):
        lease = frame[at:at + 40]
        segments = frame[at + 40:at + 40 + 32 * count]
        seeds += [bytes([kind, 5]) + lease + b"\x01" + segments for kind in range(4)]
    return seeds


def tickets():
    return [struct.pack("<BBQQQQ", 1, len(address), 0x1817161514131211, 1, 7, 4096) + address
            for address in (b"peer:1", b"10.0.0.7:7000", b"unix:/run/x")]


def protos():
    """A choice of fuzz_proto.cc, then a message."""
    request = b"\x0a\x04text\x10\x07\x1a\x06\x0a\x04deep\x22\x03abc"
    record = b"\x08\x01\x12\x04name"
    seeds = [bytes([kind]) + message for kind in (0, 1, 2, 3, 4, 10, 100)
             for message in (request, record, b"\x0a\x05shor", b"")]
    return seeds


def tcp_wires():
    greeting = b"PAWLTCP1" + struct.pack("<HHBBHIIII16x", 1, 0, 1, 0, 513, 1 << 20, 1 << 30, 16,
                                         65536)
    frame = struct.pack("<BBHIQ", 3, 0, 0, 4096, 1)
    fault = struct.pack("<BBHIQ", 5, 2, 0, 9, 0)
    rest = struct.pack("<II", 1, 0) + struct.pack("<QQ", 7, 4096)
    return [greeting + frame + rest, greeting[:12] + b"\x03" + greeting[13:] + fault + rest]


def addresses():
    return [text.encode() for text in (
        "127.0.0.1:7000", "[::1]:7000", "[fe80::1%lo]:7000", "[fe80::1%3]:1", "localhost:7000",
        "host-1.example:7000", "unix:/run/x", "unix:@abstract", "[::ffff:1.2.3.4]:5", "tcp://a:1")]


# --- programs for fuzz_connection.cc --------------------------------------------------------------

SAY, READ, PASS, CALL, COME, OPEN_DATA, SAY_DATA, LOSE, LET_GO = 8, 0, 1, 2, 3, 4, 5, 6, 7
REQUEST, RESPONSE, PART, CONFIRM, RELEASE, ANSWER, CANCEL = 0, 4, 7, 8, 10, 12, 13
GOAWAY = 19
ECHO, GET, PUT = 0, 1, 3
AS_IT_IS = 29


def greet(player=0):
    return bytes([SAY, player, 0])


def say(kind, rest=b"", player=0, call=1, how=AS_IT_IS):
    """One frame; for a type that belongs to a call the class follows by itself."""
    return bytes([SAY, player, how, 1, 0, kind, call, 1]) + rest


def one_lease(length=2, guard=0):
    """A lease with one segment that has a key."""
    return bytes([0, 0, guard, 1, 1, 2, 1, length, 1])


def request(method, payload=b"", lease=b""):
    head = bytes([method, 0, 0, 1, 1, 1])
    head += b"\x01" + lease if lease else b"\x00"
    return head + bytes([len(payload)]) + payload + b"\x01"


def response(lease=b""):
    return bytes([0, 2]) + (b"\x01" + lease if lease else b"\x00") + b"\x00"


def lease_frame(release, which=2):
    return bytes([which, 1, release])


def connections():
    get = say(REQUEST, request(GET, b"\x01"))
    put = say(REQUEST, request(PUT, b"\x00", one_lease()))
    open_data = bytes([OPEN_DATA, 0, 1, 1, 0]) + bytes([SAY_DATA, 0, 0, 0, 1, 1])
    read = bytes([READ, 3, 0, 0, 0, 0])
    later = bytes([PASS, 3])
    download = bytes([CALL, 1, 1, 5, 4])
    come = bytes([COME, 1, 1])
    return [b"\x05" + program for program in (
        greet() + say(REQUEST, request(ECHO, b"hello")),
        greet() + get + say(CONFIRM, lease_frame(0)) + say(RELEASE, lease_frame(1)),
        greet() + get + say(CANCEL, b"\x01") + later,
        greet() + put + open_data + read + say(ANSWER, lease_frame(1)),
        greet() + open_data + put + bytes([LOSE, 0, 1, 0]) + later,
        download + come + greet(1) + say(RESPONSE, response(one_lease()), 1, 9) + come + read,
        greet() + say(PART, b"\x01" + request(ECHO, b"x" * 20) + b"\x08") + say(PART, b"\xff"),
        # What was once accepted: a frame before the hello, a body that is too long, a guard that
        # nobody offered.
        say(PART, b"\x01" + request(ECHO, b"x" * 20) + b"\x08", how=31),
        greet() + say(GOAWAY, b"\x01\x05", how=3) + b"\x03",
        greet() + say(REQUEST, request(PUT, b"\x00", one_lease(guard=7))),
    )]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus")
    frames, messages = split_golden()
    seeds = {
        "handshake": handshakes(),
        "frames": [body_seed(frame) for frame in frames] +
                  [b"\x01" + message for message in messages] +
                  [b"\x01" + message_of([frame]) for frame in frames] +
                  [b"\x01" + message_of(frames[3:])],
        "descriptors": descriptors(frames),
        "metadata": [b"\x01k" + frames[0][16 + 32 + 25:16 + 32 + 25 + 9], b"\x00", b"\x02kk"],
        "tickets": tickets(),
        "proto": protos(),
        "tcp_wire": tcp_wires(),
        "address": addresses(),
        "connection": connections(),
    }
    for target, inputs in seeds.items():
        path = os.path.join(folder, target)
        os.makedirs(path, exist_ok=True)
        for number, data in enumerate(inputs):
            with open(os.path.join(path, f"seed_{number:02}"), "wb") as file:
                file.write(data)
        print(f"{target}: {len(inputs)} seeds")


if __name__ == "__main__":
    main()
