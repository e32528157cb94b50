#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Switches off, one at a time, what protects a buffer, and sees that a test fails.

usage: mutants.py [NAME ...]     (all by default; --list names them)

Works on a copy of the tree. A mutant that no test catches is a hole in the tests: exit status 1.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SIM = ["test_sim", "--gtest_filter=StormTest.*:BulkTest.*:StackTest.*:RegionUse.*"]
PROTOCOL = ["test_protocol", "--gtest_filter=UploadTest.*:ConnectionTest.*"]
EDGES = ["test_sim", "--gtest_filter=EdgesTest.*:MisuseTest.*"]
UNIT = ["test_unit", "--gtest_filter=*emory*:*ease*:*ool*:*anding*:*egion*"]

SIM_FABRIC = ["test_sim", "--gtest_filter=SimNetwork.*:Faulty.*"]
FABRIC = ["test_conformance", "--gtest_filter=*/sim:*/rough_sim:*/faulty_sim"]

KIT = ["test_kit"]
HOSTILE = ["test_tcp", "--gtest_filter=HostilePawl.*"]

# name, file, what stands there, what is put in its place, the programs that must catch it
MUTANTS = [
    ("no-confirm", "src/guard/policy.h",
     "case Guard::verify:\n      return Policy{.reader_confirms = true};",
     "case Guard::verify:\n      return Policy{};", [SIM, KIT]),
    ("reader-uses-what-is-stale", "src/rpc/connection_frames.cc",
     "answer.lease, answer.valid, answer.bitmap", "answer.lease, true, answer.bitmap", [KIT]),
    ("confirm-always-valid", "src/bulk/lender.cc",
     "check.valid = lease.valid(name.generation);", "check.valid = true;", [SIM]),
    ("confirm-ignores-generation", "src/memory/lease_end.cc",
     "std::atomic_thread_fence(std::memory_order_seq_cst);\n  return won;",
     "std::atomic_thread_fence(std::memory_order_seq_cst);\n"
     "  if (won) word.bits_.store(generation, std::memory_order_relaxed);\n  return won;",
     [SIM, UNIT]),
    ("no-segment-bitmap", "src/bulk/lender.cc",
     "if (lease.segment_valid(name.generation, i)) continue;", "continue;", [SIM]),
    ("reader-ignores-bitmap", "src/rpc/client_download.cc",
     "const bool good =\n", "const bool good = true ||\n", [SIM]),
    ("landing-freed-at-timeout", "src/bulk/puller.cc",
     "  const SlotId slot = transfer->id;\n  if (transfer->state == State::confirming) {\n    end(",
     "  for (Landing& landing : transfer->spec.landing) (void)std::move(landing).discard();\n"
     "  const SlotId slot = transfer->id;\n  if (transfer->state == State::confirming) {\n    end(",
     [SIM]),
    ("lease-outlives-the-call", "src/rpc/client_call.cc",
     "if (lease_id_ != 0) lane_->engine().lender().end(std::exchange(lease_id_, 0), reason);",
     "static_cast<void>(reason);\n  lease_id_ = 0;", [SIM]),
    ("retire-ends-nothing", "src/memory/buffer.cc",
     "if (extent_) extent_->withdraw_all(memory::LeaseEnd::withdrawn);", "", [SIM, UNIT]),
    ("answer-by-lease", "src/bulk/puller.cc",
     "  asked.pop_front();\n  if (transfer == nullptr",
     "  asked.pop_front();\n"
     "  for (Transfer& each : host.transfers().transfers_) {\n"
     "    if (each.state == State::confirming && each.spec.lease == lease) {\n"
     "      transfer = &each;\n      break;\n    }\n  }\n  if (transfer == nullptr", [PROTOCOL]),
    ("answer-while-reading", "src/rpc/server_call.cc",
     "  if (reading_ != 0) {\n    // The answer", "  if (false) {\n    // The answer", [PROTOCOL]),
    ("guard-of-the-peer-is-believed", "src/rpc/connection_frames.cc",
     "if (lease && lease->lease.generation != 0 && !guard_negotiated(lease->guard)) {",
     "if (lease && lease->lease.generation == 1 && !guard_negotiated(lease->guard)) {",
     [PROTOCOL]),
    ("half-a-request-is-not-cancelled", "src/rpc/client_call.cc",
     "if (going_out_ && connection_) {", "if (request_went_out_ && connection_) {", [EDGES]),
    ("hold-until-ack-ignored", "src/rpc/client_call.cc",
     "terms.hold_until_ack = lane_->options().hold_until_ack;", "", [SIM]),
    ("disconnect-does-not-disconnect", "src/bulk/lender.cc",
     'entry->host.break_connection("a lent buffer was taken back (guard disconnect)");', "", [SIM]),
    ("cancel-does-not-stop-pulls", "src/rpc/server_call.cc",
     "while (heeds && !pulls_.empty()) pulls_.front()->call_over(why);", "", [SIM]),
    ("ran-always-no", "src/rpc/client_call.cc",
     "const Ran ran = self->request_went_out_ ? Ran::unknown : Ran::no;",
     "const Ran ran = Ran::no;", [SIM]),
    # Memory: who may lend, land, write, and when it goes home.
    ("lending-takes-the-landing-reserve", "src/memory/pool_core.cc",
     "bool refused = bytes > left;", "bool refused = false;", [UNIT]),
    ("buffers-take-the-landing-reserve", "src/memory/pool_core.cc",
     "!want.landing && charged_bytes_ + want.bytes > lendable_bytes_max_", "false", [UNIT]),
    ("lending-makes-no-room", "src/memory/pool_core.cc",
     "return collect_caches() || end_oldest_lease() != 0;", "return false;", [UNIT]),
    ("lending-tells-nobody", "src/memory/lease_table.cc",
     "core_.serve_waiters();", "", [UNIT]),
    ("overtaking-has-no-bound", "src/memory/pool_queue.cc",
     "if (w->landing() || !within_reserve) w->overtaken += want.bytes;",
     "if (w->landing() || !within_reserve) w->overtaken += 0 * want.bytes;", [UNIT]),
    ("dropped-waiter-tells-nobody", "src/memory/pool_waiters.cc",
     "  serve();  // it may have been all that stood in somebody's way\n", "", [UNIT]),
    ("deadline-tells-nobody", "src/memory/pool_waiters.cc",
     "    serve();  // it may have been all that stood in the way\n", "", [UNIT]),
    ("caches-kept-from-waiters", "src/memory/thread_cache.cc",
     "if (closed_ || waiters.load(std::memory_order_relaxed) != 0) return false;",
     "if (closed_) return false;", [UNIT]),
    ("full-quarantine-refuses-nothing", "src/memory/pool_core.cc",
     "if (!quarantine_.full()) return {};", "return {};", [UNIT]),
    ("memory-home-before-the-proof", "src/memory/lease.cc",
     "if (!settles_later_) give_back_all();", "give_back_all();", [UNIT]),
    ("unique-while-lent", "src/memory/buffer.cc",
     "if (!extent_->sole()) {", "if (false) {", [UNIT]),
    ("failed-landing-shows-its-bytes", "src/memory/landing.cc",
     "BufferAccess::buffer(extent_, data_, 0);", "BufferAccess::buffer(extent_, data_, size_);",
     [UNIT]),
    ("landing-begins-no-use", "src/memory/region.cc",
     "range.data() + range.size()});\n  begin_use(range);\n",
     "range.data() + range.size()});\n", [UNIT]),
    ("landed-block-of-an-earlier-use", "src/memory/landing.cc",
     "region != nullptr ? region->use() : 0", "region != nullptr ? 0 * region->use() : 0", [UNIT]),
    ("region-reuse-ends-nothing", "src/memory/region.cc",
     "    extent_.withdraw(range, LeaseEnd::withdrawn);\n", "    return range;\n", [UNIT]),
    ("region-reuse-looks-at-the-first-block", "src/memory/region.cc",
     "const Held held = this->held(range);",
     "const Held held = this->held(range.first(block_bytes_));", [UNIT]),
    ("region-reuse-looks-once", "src/memory/region.cc",
     "    extent_.withdraw(range, LeaseEnd::withdrawn);\n",
     "    extent_.withdraw(range, LeaseEnd::withdrawn);\n"
     "    std::lock_guard lock(extent_.mutex());\n"
     "    if (this->held(range) != Held::unsettled) return range;\n", [UNIT]),
    ("region-reuse-begins-no-use", "src/memory/region.cc",
     "      begin_use(range);\n      if", "      if", [UNIT, SIM]),
    ("region-notes-the-first-block-only", "src/memory/block_uses.cc",
     "for (std::size_t i = first; i <= last; ++i)",
     "for (std::size_t i = first; i <= first + 0 * last; ++i)", [UNIT]),
    ("region-checks-the-first-block-only", "src/memory/block_uses.h",
     "for (std::size_t i = first; i <= last; ++i)",
     "for (std::size_t i = first; i <= first + 0 * last; ++i)", [UNIT]),
    ("region-lends-what-its-writer-has", "src/memory/region.cc",
     "return present(range, use);", "return range.empty() ? present(range, use) : Status();",
     [UNIT, SIM]),
    ("copies-are-not-checked-before", "src/memory/region.cc",
     "if (!uses_.same(first, last, use)) return stale();\n  piece_.kind().copy_out(to, from);\n"
     "  return uses_.same_after_copy(first, last, use) ? Status() : stale();",
     "static_cast<void>(use), static_cast<void>(first), static_cast<void>(last);\n"
     "  piece_.kind().copy_out(to, from);\n  return {};", [UNIT, SIM]),
    ("copies-are-not-checked-afterwards", "src/memory/region.cc",
     "return uses_.same_after_copy(first, last, use) ? Status() : stale();", "return {};",
     [UNIT, SIM]),
    ("slices-lose-their-use", "src/memory/buffer.cc",
     "return Block(extent_, data_ + offset, bytes, use_);",
     "return Block(extent_, data_ + offset, bytes, use_ + 1000);", [UNIT]),
    ("stale-part-ends-the-call", "src/rpc/server_call.cc",
     "|| !drop_stale_parts()", "|| true", [SIM]),
    ("stale-inline-part-is-sent", "src/rpc/server_call.cc",
     "    if (copied.ok()) {\n      out =", "    if (copied.ok() || true) {\n      out =", [SIM]),
    ("stale-inline-upload-is-sent", "src/rpc/client_call.cc",
     "if (Status copied = block.copy_out(0, out.first(block.size())); !copied.ok()) return copied;",
     "static_cast<void>(block.copy_out(0, out.first(block.size())));", [SIM]),
    ("region-lands-where-it-lends", "src/memory/region.cc",
     "if (held(range) != Held::no) {", "if (false) {", [UNIT]),
    ("close-does-not-wait-for-reads", "src/memory/region.cc",
     "return closed_ && extent_.lent() == 0 && landings_.empty();",
     "return closed_ && extent_.lent() == 0;", [UNIT]),
    ("landing-bypasses-the-kind", "src/memory/landing.cc",
     "extent_->kind().copy_in(data_ + offset, from);",
     "for (std::size_t i = 0; i < from.size(); ++i) data_[offset + i] = from[i];", [UNIT]),
    # What hostile peers meet.
    ("lease-of-another-connection", "src/bulk/lender.cc",
     "entry == nullptr || &entry->host != &host ||",
     "entry == nullptr || (false && &entry->host != &host) ||", [HOSTILE]),
    ("epoch-of-a-confirm-ignored", "src/rpc/connection_frames.cc",
     "if (confirm.epoch == own_.epoch) {", "if (true || confirm.epoch == own_.epoch) {", [HOSTILE]),
    ("credit-not-asked-for", "src/rpc/session.cc",
     "if (!had_credit(header.message_class)) {", "if (false) {", [HOSTILE]),
    ("served-bytes-without-bound", "src/rpc/connection_frames.cc",
     "if (served_bytes_ > kServedBytesMax) {", "if (false) {", [HOSTILE]),
    ("hello-not-compared", "src/rpc/connection_frames.cc",
     "if (hello.epoch != own_.epoch || hello.incarnation != peer_.incarnation ||\n"
     "      hello.transcript != transcript) {", "if (false && hello.transcript != transcript) {",
     [HOSTILE]),
    ("data-secret-not-compared", "src/rpc/engine.cc",
     " || found->second->secret() != hello.connection_secret ||", " ||", [HOSTILE]),
    # The promises of the fabric, broken in the simulated one: does the suite see it?
    ("fabric-key-bounds", "src/fabric/sim/memory.cc",
     "if (offset > length || bytes > length - offset) return {};", "", [FABRIC]),
    ("fabric-key-of-another-group", "src/fabric/sim/memory.cc",
     "if (exact_keys_ && found->second.group != reader.group) return {};", "", [FABRIC]),
    ("fabric-window-of-another-endpoint", "src/fabric/sim/memory.cc",
     " || window.endpoint != reader.endpoint) return {};", ") return {};", [FABRIC]),
    ("fabric-old-window-key", "src/fabric/sim/memory.cc",
     "!window.bound || window.key != from.key ||", "!window.bound ||", [FABRIC]),
    ("fabric-success-before-connected", "src/fabric/sim/serve.cc",
     "endpoint->state == SimState::ready && endpoint->connected_taken &&",
     "endpoint->state == SimState::ready &&", [FABRIC]),
    ("fabric-closed-before-completions", "src/fabric/sim/fabric.cc",
     "after_completions ? completions_pushed_ : 0", "after_completions ? 0 : 0", [FABRIC]),
    ("fabric-unsignalled-alone", "src/fabric/sim/fabric.cc",
     "endpoint.signals.add(work.signalled);", "endpoint.signals.add(true);", [FABRIC]),
    ("fabric-message-cut", "src/fabric/sim/serve.cc",
     "inbound.message.size() <= receive.bytes &&", "inbound.message.size() > 0 &&", [FABRIC]),
    ("fabric-window-freed-under-work", "src/fabric/sim/memory.cc",
     "found->second.work_posted > 0", "false", [SIM_FABRIC]),
    ("fabric-read-completes-before-its-bytes", "src/fabric/sim/serve.cc",
     "if (last) f.read_complete(", "if (offset == 0) f.read_complete(", [FABRIC]),
    ("faulty-held-reads-not-flushed", "src/fabric/faulty/faulty_fabric.cc",
     "  flush_held(endpoint);\n", "", [SIM_FABRIC]),
    ("faulty-messages-overtake", "src/fabric/faulty/held_work.cc",
     "if (behind) due = std::max(due, endpoint.receive_order);", "", [FABRIC]),
]


def run(command, cwd, quiet=True):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL if quiet else None,
                          stderr=subprocess.STDOUT if quiet else None, check=False).returncode


def build(tree, programs):
    return run(["ninja", "-C", "build/debug", *sorted({p[0] for p in programs})], tree)


def caught_by(tree, programs):
    for program in programs:
        command = ["timeout", "300", f"build/debug/bin/{program[0]}", *program[1:],
                   "--gtest_brief=1"]
        result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False,
                                errors="replace")
        if result.returncode != 0:
            failed = re.findall(r"^\[  FAILED  \] (\w+\.\w+)", result.stdout, re.MULTILINE)
            return failed[0] if failed else f"{program[0]} ended with {result.returncode}"
    return None


def main():
    wanted = sys.argv[1:]
    if wanted == ["--list"]:
        print("\n".join(m[0] for m in MUTANTS))
        return 0
    mutants = [m for m in MUTANTS if not wanted or m[0] in wanted]
    root = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True,
                          check=True).stdout.strip()
    tree = tempfile.mkdtemp(prefix="pawl-mutants-")
    try:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
        for name in files.stdout.decode().split("\0"):
            if name and os.path.isfile(os.path.join(root, name)):
                os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
                shutil.copy2(os.path.join(root, name), os.path.join(tree, name))
        run(["git", "init", "-q"], tree)
        if run(["cmake", "--preset", "debug"], tree) != 0 or build(
                tree, [SIM, UNIT, FABRIC, KIT, HOSTILE]) != 0:
            print("mutants: the unchanged tree does not build")
            return 1
        if caught_by(tree, [SIM, UNIT, SIM_FABRIC, FABRIC, KIT, HOSTILE]):
            print("mutants: the tests fail on the unchanged tree")
            return 1
        holes = 0
        for name, path, old, new, programs in mutants:
            full = os.path.join(tree, path)
            with open(full, encoding="utf-8") as file:
                original = file.read()
            if original.count(old) != 1:
                print(f"{name:34} the text to change is not there once in {path}", flush=True)
                holes += 1
                continue
            with open(full, "w", encoding="utf-8") as file:
                file.write(original.replace(old, new))
            by = caught_by(tree, programs) if build(tree, programs) == 0 else "DOES NOT BUILD"
            print(f"{name:34} {by or 'NOT CAUGHT'}", flush=True)
            holes += by is None or by == "DOES NOT BUILD"
            with open(full, "w", encoding="utf-8") as file:
                file.write(original)
        print(f"{len(mutants) - holes} of {len(mutants)} caught")
        return 1 if holes else 0
    finally:
        shutil.rmtree(tree, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
