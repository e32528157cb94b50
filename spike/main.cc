// SPDX-License-Identifier: Apache-2.0
// Drives real queue pairs of two devices (rxe0, rxe1) through fabric.h, and prints a line for each
// promise that was tried, and what was measured. Exit code 0: all hold.
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>

#include "verbs_spike.h"

namespace pawl::spike {
namespace {

constexpr std::size_t kMemoryBytes = 4 << 20;

int failures = 0;

void verdict(bool good, const std::string& what) {
  std::printf("%s  %s\n", good ? "ok    " : "FAILED", what.c_str());
  std::fflush(stdout);
  if (!good) ++failures;
}
void note(const std::string& what) {
  std::printf("       %s\n", what.c_str());
  std::fflush(stdout);
}
std::string milliseconds(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", static_cast<double>(d.count()) * 1e-6);
  return text;
}
TimePoint now() { return SteadyClock().now(); }

class PlainMemory final : public MemoryKind {
 public:
  std::string_view name() const override { return "host"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return Status(Code::resource_exhausted, "mmap");
    return std::span(static_cast<std::byte*>(at), bytes);
  }
  void free(std::span<std::byte> memory) noexcept override { munmap(memory.data(), memory.size()); }
  int dma_buf_fd(std::span<const std::byte>) const override { return -1; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
  }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    std::memcpy(to.data(), from, to.size());
  }
  bool cpu_readable() const override { return true; }
  bool host() const override { return true; }
} plain_memory;

/// One node: a fabric on one device, memory, and everything it reported.
struct Side {
  explicit Side(const char* device, SpikeOptions options = {}) : fabric(device, options) {
    memory = plain_memory.allocate(kMemoryBytes).value();
    handle = fabric.register_memory(memory, plain_memory, MemoryUse::bulk).value();
  }
  void turn() {
    std::array<Completion, 16> out;
    const std::size_t n = fabric.poll(now(), out);
    completions.insert(completions.end(), out.begin(), out.begin() + n);
    for (Event event; fabric.poll_event(event);) events.push_back(std::move(event));
  }
  /// Turns of this side alone.
  bool until(const std::function<bool()>& done) {
    for (const TimePoint end = now() + 20s; !done() && now() < end;) turn();
    return done();
  }
  const Event* event(EventKind kind, EndpointId endpoint = {}) const {
    for (const Event& e : events) {
      if (e.kind == kind && (!endpoint || e.endpoint == endpoint)) return &e;
    }
    return nullptr;
  }
  const Completion* completion(std::uint64_t id) const {
    for (const Completion& c : completions) {
      if (c.id == id) return &c;
    }
    return nullptr;
  }
  bool is(std::uint64_t id, CompletionStatus status) const {
    const Completion* c = completion(id);
    return c != nullptr && c->status == status;
  }
  std::size_t count(std::uint64_t id) const {
    return static_cast<std::size_t>(std::count_if(completions.begin(), completions.end(),
                                                  [&](const Completion& c) { return c.id == id; }));
  }
  LocalSegment at(std::size_t offset, std::uint32_t length) const {
    return {memory.data() + offset, length, handle};
  }
  void fill(std::size_t offset, std::size_t length, int value) {
    std::memset(memory.data() + offset, value, length);
  }
  bool filled(std::size_t offset, std::size_t length, int value) const {
    return std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(offset),
                       memory.begin() + static_cast<std::ptrdiff_t>(offset + length),
                       [&](std::byte b) { return b == static_cast<std::byte>(value); });
  }

  VerbsSpike fabric;
  std::span<std::byte> memory;
  MemoryHandle handle;
  std::vector<Event> events;
  std::vector<Completion> completions;
};

/// Two nodes with one endpoint between them: `a` on rxe0 accepts, `b` on rxe1 connects.
struct Pair {
  explicit Pair(SpikeOptions options = {}, std::size_t receives = 8)
      : a("rxe0", options), b("rxe1", options) {
    listener = a.fabric.listen("10.77.0.1:0").value();
    join(receives);
  }
  // Receives have ids 1000+i and 1 KiB each from 3 MiB on.
  void join(std::size_t receives, EndpointOptions options = {}) {
    a.events.clear(), b.events.clear();
    const std::byte hello[] = {std::byte{'b'}}, answer[] = {std::byte{'a'}};
    eb = b.fabric.connect(a.fabric.listener_address(listener), options, hello, now() + 30s).value();
    post_receives(b, eb, receives);
    until([&] { return a.event(EventKind::connect_request) != nullptr; });
    ea = a.event(EventKind::connect_request)->endpoint;
    post_receives(a, ea, receives);
    if (!a.fabric.accept(ea, options, answer)) return;
    connected = until([&] {
      return a.event(EventKind::connected, ea) != nullptr &&
             b.event(EventKind::connected, eb) != nullptr;
    });
  }
  static void post_receives(Side& side, EndpointId endpoint, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      post(side, endpoint, {.id = 1000 + i, .op = Opcode::receive},
           {side.at((3 << 20) + i * 1024, 1024)});
    }
  }
  static bool post(Side& side, EndpointId endpoint, WorkRequest work,
                   std::vector<LocalSegment> local = {}) {
    Status why;
    work.local = local;
    return side.fabric.post(endpoint, {&work, 1}, why) == 1;
  }
  bool until(const std::function<bool()>& done, Duration limit = 20s) {
    for (const TimePoint end = now() + limit; now() < end;) {
      a.turn(), b.turn();
      if (done()) return true;
    }
    return false;
  }
  void pause(Duration d) {
    until([] { return false; }, d);
  }
  RemoteAddress exposed(std::size_t offset, std::size_t length) {
    return a.fabric.expose({}, a.handle, a.memory.data() + offset, length).value();
  }

  Side a, b;
  ListenerId listener;
  EndpointId ea, eb;
  bool connected = false;
};

std::uint64_t counter(const char* device, const char* name) {
  std::uint64_t value = 0;
  std::ifstream(std::string("/sys/class/infiniband/") + device + "/ports/1/hw_counters/" + name) >>
      value;
  return value;
}

void connecting() {
  Pair p;
  verdict(p.connected, "connect and accept; both hellos arrive");
  const Event* request = p.a.event(EventKind::connect_request);
  verdict(request->hello == std::vector{std::byte{'b'}} &&
              p.b.event(EventKind::connected)->hello == std::vector{std::byte{'a'}},
          "hello blobs are the peers'");

  const EndpointId refused =
      p.b.fabric.connect(p.a.fabric.listener_address(p.listener), {}, {}, now() + 30s).value();
  Pair::post(p.b, refused, {.id = 77, .op = Opcode::receive}, {p.b.at(0, 64)});
  p.a.events.clear();
  p.until([&] { return p.a.event(EventKind::connect_request) != nullptr; });
  const std::byte no[] = {std::byte{'n'}};
  p.a.fabric.reject(p.a.event(EventKind::connect_request)->endpoint, no);
  p.until([&] { return p.b.event(EventKind::connect_failed, refused) != nullptr; });
  const Event* failed = p.b.event(EventKind::connect_failed, refused);
  verdict(failed != nullptr && failed->hello == std::vector{std::byte{'n'}} &&
              p.b.is(77, CompletionStatus::flushed),
          "reject: its receive is flushed, then connect_failed with the hello");

  const EndpointId nobody = p.b.fabric.connect("10.77.0.1:9", {}, {}, now() + 30s).value();
  p.until([&] { return p.b.event(EventKind::connect_failed, nobody) != nullptr; });
  verdict(p.b.event(EventKind::connect_failed, nobody) != nullptr,
          "nobody listens: connect_failed");
}

// A message sent at once after `connected` can be in the acceptor's queue before the connector's
// last word is in its socket.
void early_message() {
  int early = 0;
  Pair p;
  for (int i = 0; i < 20; ++i) {
    p.a.events.clear(), p.b.events.clear(), p.a.completions.clear();
    p.eb = p.b.fabric.connect(p.a.fabric.listener_address(p.listener), {}, {}, now() + 30s).value();
    p.until([&] { return p.a.event(EventKind::connect_request) != nullptr; });
    p.ea = p.a.event(EventKind::connect_request)->endpoint;
    Pair::post_receives(p.a, p.ea, 1);
    (void)p.a.fabric.accept(p.ea, {}, {});
    p.a.turn();
    p.b.until([&] { return p.b.event(EventKind::connected) != nullptr; });
    Pair::post(p.b, p.eb, {.id = 1}, {p.b.at(0, 8)});
    p.b.until([&] { return p.b.completion(1) != nullptr; });  // acknowledged: it is there
    p.b.completions.clear();
    bool in_order = true;
    for (const TimePoint end = now() + 20s; now() < end && p.a.completion(1000) == nullptr;) {
      std::array<Completion, 4> out;
      const std::size_t n = p.a.fabric.poll(now(), out);
      if (n > 0 && p.a.event(EventKind::connected) == nullptr) in_order = false;
      p.a.completions.insert(p.a.completions.end(), out.begin(), out.begin() + n);
      for (Event event; p.a.fabric.poll_event(event);) p.a.events.push_back(std::move(event));
    }
    early += in_order && p.a.is(1000, CompletionStatus::success) ? 1 : 0;
    p.a.fabric.close(p.ea), p.b.fabric.close(p.eb);
    p.until([&] { return p.a.event(EventKind::closed) != nullptr; });
  }
  verdict(early == 20,
          "a first message, sent before `connected` was taken, is seen after it (20 ×)");
}

void credits() {
  constexpr std::uint64_t kCredits = 8, kMessages = 2000;
  const std::uint64_t rnr = counter("rxe0", "send_rnr_err") + counter("rxe1", "send_rnr_err");
  Pair p({}, kCredits);
  std::uint64_t sent = 0, got = 0, credit = kCredits, outstanding = 0;
  bool order = true;
  const TimePoint start = now();
  while (got < kMessages && now() - start < 20s) {
    p.a.turn(), p.b.turn();
    for (const Completion& c : p.a.completions) {
      if (c.op != Opcode::receive || c.status != CompletionStatus::success) continue;
      const std::size_t offset = (3 << 20) + (c.id - 1000) * 1024;
      std::uint64_t number = 0;
      std::memcpy(&number, p.a.memory.data() + offset, sizeof number);
      order = order && number == got && c.bytes == 64;
      ++got;
      Pair::post(p.a, p.ea, {.id = c.id, .op = Opcode::receive}, {p.a.at(offset, 1024)});
      const std::uint64_t total = kCredits + got;  // only now: the receive is posted again
      LocalSegment local{const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&total)), 8, {}};
      Pair::post(p.a, p.ea, {.id = 1, .signalled = got % 16 == 0, .inline_payload = true}, {local});
    }
    p.a.completions.clear();
    for (const Completion& c : p.b.completions) {
      if (c.op == Opcode::send) --outstanding;
      if (c.op != Opcode::receive || c.status != CompletionStatus::success) continue;
      const std::size_t offset = (3 << 20) + (c.id - 1000) * 1024;
      std::uint64_t total = 0;
      std::memcpy(&total, p.b.memory.data() + offset, sizeof total);
      credit = std::max(credit, total);
      Pair::post(p.b, p.eb, {.id = c.id, .op = Opcode::receive}, {p.b.at(offset, 1024)});
    }
    p.b.completions.clear();
    for (; sent < std::min(credit, kMessages) && outstanding < 100; ++sent, ++outstanding) {
      std::memcpy(p.b.memory.data() + sent % 1024 * 64, &sent, sizeof sent);
      Pair::post(p.b, p.eb, {.id = 2, .signalled = sent % 4 == 3}, {p.b.at(sent % 1024 * 64, 64)});
    }
  }
  const std::uint64_t more =
      counter("rxe0", "send_rnr_err") + counter("rxe1", "send_rnr_err") - rnr;
  verdict(got == kMessages && order, "2000 messages under 8 credits, in order, none lost");
  verdict(more == 0, "receiver-not-ready never happened (counter of the devices)");
}

void waiting_for_receive() {
  Pair p({}, 0);
  Pair::post(p.b, p.eb, {.id = 1}, {p.b.at(0, 100)});
  Pair::post(p.b, p.eb, {.id = 2, .op = Opcode::read, .remote = p.exposed(0, 4096)},
             {p.b.at(4096, 4096)});
  p.pause(100ms);
  const bool waited = p.b.completion(1) == nullptr && p.b.completion(2) == nullptr;
  const TimePoint start = now();
  Pair::post_receives(p.a, p.ea, 1);
  const bool came =
      p.until([&] { return p.b.completion(2) != nullptr && p.a.completion(1000) != nullptr; });
  verdict(waited && came, "a message without a receive waits, and a READ behind it");
  note("from posting the receive to both being done: " + milliseconds(now() - start));

  SpikeOptions options;
  options.rnr_retry = 6;
  Pair q(options, 0);
  const TimePoint begin = now();
  Pair::post(q.b, q.eb, {.id = 1}, {q.b.at(0, 100)});
  q.until([&] { return q.b.event(EventKind::failed) != nullptr; });
  verdict(q.b.is(1, CompletionStatus::receiver_not_ready),
          "with a finite retry: receiver_not_ready, then failed");
  note("six retries of 0.64 ms took " + milliseconds(now() - begin));
  note(std::string("the receiver's end noticed: ") +
       (q.until([&] { return q.a.event(EventKind::failed) != nullptr; }, 500ms) ? "yes" : "no"));
}

void reading() {
  Pair p;
  p.a.fill(0, 1 << 20, 0x5a);
  const TimePoint start = now();
  Pair::post(p.b, p.eb, {.id = 1, .op = Opcode::read, .remote = p.exposed(0, 1 << 20)},
             {p.b.at(0, 1 << 20)});
  p.until([&] { return p.b.completion(1) != nullptr; });
  verdict(p.b.is(1, CompletionStatus::success) && p.b.filled(0, 1 << 20, 0x5a), "READ of 1 MiB");
  note("took " + milliseconds(now() - start));

  // More READs than the depth are queued by the device; a send waits behind them.
  bool all = true;
  for (std::uint64_t i = 0; i < 40; ++i) {
    all = all &&
          Pair::post(p.b, p.eb, {.id = 10 + i, .op = Opcode::read, .remote = p.exposed(0, 65536)},
                     {p.b.at(i * 65536, 65536)});
  }
  p.until([&] { return p.b.completion(49) != nullptr; });
  verdict(all && p.b.is(49, CompletionStatus::success),
          "40 READs at depth 16 are accepted and end");

  RemoteAddress bad = p.exposed(0, 4096);
  bad.key ^= 0x5500;
  p.b.fill(0, 8192, 0x11);
  Pair::post(p.b, p.eb, {.id = 2, .op = Opcode::read, .remote = bad}, {p.b.at(0, 4096)});
  Pair::post(p.b, p.eb, {.id = 3, .op = Opcode::read, .remote = p.exposed(0, 4096)},
             {p.b.at(4096, 4096)});
  const TimePoint refused = now();
  p.until([&] { return p.b.event(EventKind::failed) != nullptr && p.b.completion(3) != nullptr; });
  verdict(p.b.is(2, CompletionStatus::remote_access) && p.b.is(3, CompletionStatus::flushed) &&
              p.b.filled(0, 4096, 0x11),
          "READ with a wrong key: remote_access, the next one flushed, landing memory untouched");
  const bool owner = p.until([&] { return p.a.event(EventKind::failed) != nullptr; });
  verdict(owner && p.a.is(1000, CompletionStatus::flushed), "the owner's end fails too");
  note("owner noticed after " + milliseconds(now() - refused) +
       ", by its socket first: " + (p.a.fabric.socket_seen ? "yes" : "no"));

  // The owner's hang-up by TCP races with its NAK: the grace lets the NAK win.
  for (const Duration grace : {Duration(0), Duration(100ms)}) {
    SpikeOptions options;
    options.hang_up_grace = grace;
    int named = 0;
    Pair q(options);
    for (int i = 0; i < 10; ++i) {
      bad = q.exposed(0, 4096);
      bad.key ^= 0x5500;
      Pair::post(q.b, q.eb, {.id = 2, .op = Opcode::read, .remote = bad}, {q.b.at(0, 4096)});
      for (const TimePoint end = now() + 20s; now() < end && q.b.completion(2) == nullptr;) {
        q.a.turn();
        if (i % 2 == 0 || q.a.event(EventKind::failed) != nullptr) q.b.turn();
      }
      named += q.b.is(2, CompletionStatus::remote_access) ? 1 : 0;
      q.a.fabric.close(q.ea), q.b.fabric.close(q.eb);
      q.a.completions.clear(), q.b.completions.clear();
      q.join(8);
    }
    note("refused READs that say remote_access, grace " + milliseconds(grace) + ": " +
         std::to_string(named) + " of 10");
    if (grace > Duration(0))
      verdict(named == 10, "a refusal is named, though the hang-up came too");
  }

  SpikeOptions silent;
  silent.hang_up = false;
  for (const std::size_t receives : {std::size_t{4}, std::size_t{0}}) {
    Pair q(silent, receives);
    bad = q.exposed(0, 4096);
    bad.key ^= 0x5500;
    Pair::post(q.b, q.eb, {.id = 2, .op = Opcode::read, .remote = bad}, {q.b.at(0, 4096)});
    q.until([&] { return q.b.event(EventKind::failed) != nullptr; });
    const bool noticed = q.until([&] { return q.a.event(EventKind::failed) != nullptr; }, 1s);
    note("without the socket, the owner with " + std::to_string(receives) +
         " receives posted noticed within 1 s: " + (noticed ? "yes" : "no") +
         ", async events: " + std::to_string(q.a.fabric.async_events.size()));
    for (const std::string& text : q.a.fabric.async_events) note("  async event: " + text);
  }
}

void outside_registration() {
  Pair p;
  const LocalSegment outside{p.b.memory.data() + kMemoryBytes - 100, 4096, p.b.handle};
  Pair::post(p.b, p.eb, {.id = 1}, {outside});
  p.until([&] { return p.b.event(EventKind::failed) != nullptr; });
  verdict(p.b.is(1, CompletionStatus::local_error),
          "a segment outside its registration: local_error");

  Pair q({}, 1);
  Pair::post(q.b, q.eb, {.id = 1}, {q.b.at(0, 2000)});
  q.until([&] { return q.a.completion(1000) != nullptr && q.b.completion(1) != nullptr; });
  verdict(
      q.a.is(1000, CompletionStatus::local_error) && q.b.is(1, CompletionStatus::remote_operation),
      "a message longer than its receive: local_error there, remote_operation here");
  note("native: receive " +
       std::to_string(q.a.completion(1000) ? q.a.completion(1000)->native : -1) + ", send " +
       std::to_string(q.b.completion(1) ? q.b.completion(1)->native : -1));
}

void unsignalled() {
  Pair p({}, 64);
  bool order = true;
  for (std::uint64_t i = 0; i < 60; ++i) {
    Pair::post(p.b, p.eb, {.id = i, .signalled = i % 8 == 7}, {p.b.at(0, 8)});
  }
  p.until([&] { return p.b.completions.size() >= 56 && p.a.completions.size() >= 60; });
  p.pause(20ms);
  for (std::size_t i = 0; i < p.b.completions.size(); ++i)
    order = order && p.b.completions[i].id == i;
  verdict(p.b.completions.size() == 56 && order,
          "unsignalled requests complete once, in order, with the next signalled one");
  p.b.fabric.close(p.eb);
  p.until([&] { return p.b.event(EventKind::closed) != nullptr; });
  verdict(
      p.b.count(59) == 1 && p.b.is(59, CompletionStatus::flushed),
      "the unsignalled rest is flushed by close (though all had arrived: a flush proves nothing)");

  Pair q({}, 64);
  std::uint64_t accepted = 0;
  while (accepted < 1000 &&
         Pair::post(q.b, q.eb, {.id = accepted, .signalled = false}, {q.b.at(0, 8)})) {
    ++accepted;
  }
  q.until([&] { return q.b.completions.size() >= 64; });
  verdict(accepted == 128 && q.b.completions.size() >= 64,
          "a send queue full of unsignalled requests moves again by itself");
}

void errors_and_flushes() {
  Pair p;
  const EndpointId ea1 = p.ea, eb1 = p.eb;
  p.join(8);
  // Two endpoints between two nodes: the first is taken to ERR with work posted, the second lives.
  for (std::uint64_t i = 0; i < 20; ++i) {
    Pair::post(p.b, eb1, {.id = 200 + i, .op = Opcode::read, .remote = p.exposed(0, 65536)},
               {p.b.at(i * 65536, 65536)});
  }
  p.b.fabric.set_error(eb1);
  Status why;
  WorkRequest late{.id = 999};
  verdict(p.b.fabric.post(eb1, {&late, 1}, why) == 0 && why.code() == Code::failed_precondition,
          "post after set_error is refused");
  const TimePoint start = now();
  p.until(
      [&] { return p.b.completions.size() >= 28 && p.a.event(EventKind::failed, ea1) != nullptr; });
  std::multiset<std::uint64_t> ids;
  for (const Completion& c : p.b.completions) ids.insert(c.id);
  bool once = ids.size() == 28;
  for (std::uint64_t i = 0; i < 20; ++i) once = once && ids.count(200 + i) == 1;
  for (std::uint64_t i = 0; i < 8; ++i) once = once && ids.count(1000 + i) == 1;
  verdict(once, "set_error: every posted request ends exactly once");
  verdict(p.b.event(EventKind::failed) == nullptr, "no `failed` for one's own set_error");
  verdict(p.a.event(EventKind::failed, ea1) != nullptr, "the peer's end fails");
  note("peer noticed after " + milliseconds(now() - start));
  p.a.completions.clear(), p.b.completions.clear();
  Pair::post(p.b, p.eb, {.id = 5}, {p.b.at(0, 8)});
  p.until([&] { return p.a.completion(1000) != nullptr && p.b.completion(5) != nullptr; });
  verdict(p.b.is(5, CompletionStatus::success), "the other endpoint is not touched");

  p.b.fabric.close(p.eb), p.b.fabric.close(eb1), p.a.fabric.close(p.ea), p.a.fabric.close(ea1);
  bool last = true;
  p.until([&] {
    const bool closed = p.b.event(EventKind::closed, p.eb) != nullptr;
    if (!closed) return false;
    last = p.b.count(1000) == 1 && p.b.count(1007) == 1;
    return true;
  });
  verdict(last, "closed comes after the last completion");
  p.until([&] { return p.a.fabric.resources().endpoints + p.b.fabric.resources().endpoints == 0; });
  verdict(p.a.fabric.resources().endpoints == 0 && p.b.fabric.resources().work_requests == 0,
          "nothing is left after close");
  note("ibv_destroy_qp took " + milliseconds(p.b.fabric.last_destroy));
}

// A flushed READ gives its memory back: nothing lands afterwards.
void landing_after_flush() {
  constexpr std::uint32_t kBytes = 128 << 10, kReads = 8, kAll = kBytes * kReads;
  constexpr int kRounds = 10;
  Pair p;
  int rounds = 0, partial = 0;
  Duration flush_max{}, close_max{};
  for (int round = 0; round < kRounds; ++round) {
    p.a.completions.clear(), p.b.completions.clear();
    p.b.fill(0, kAll, 0x11), p.a.fill(0, kAll, 0x22);
    for (std::uint64_t i = 0; i < kReads; ++i) {
      Pair::post(p.b, p.eb, {.id = i, .op = Opcode::read, .remote = p.exposed(i * kBytes, kBytes)},
                 {p.b.at(i * kBytes, kBytes)});
    }
    p.pause(std::chrono::milliseconds(round));
    TimePoint start = now();
    p.b.fabric.set_error(p.eb);
    p.until([&] { return p.b.completion(kReads - 1) != nullptr; });
    flush_max = std::max(flush_max, now() - start);
    const std::vector<std::byte> then(p.b.memory.begin(), p.b.memory.begin() + kAll);
    p.pause(20ms);
    rounds += std::equal(then.begin(), then.end(), p.b.memory.begin()) ? 1 : 0;
    partial += p.b.is(kReads - 1, CompletionStatus::flushed) && then[0] == std::byte{0x22} ? 1 : 0;
    start = now();
    p.b.fabric.close(p.eb), p.a.fabric.close(p.ea);
    p.until([&] { return p.b.event(EventKind::closed, p.eb) != nullptr; });
    close_max = std::max(close_max, now() - start);
    p.join(8);
  }
  verdict(rounds == kRounds, "nothing lands after a READ was flushed (10 ×)");
  note("of these, cut in the middle: " + std::to_string(partial) + "; slowest flush " +
       milliseconds(flush_max) + ", slowest close " + milliseconds(close_max));
}

// A message whose send succeeded is not lost by the sender's close.
void last_message() {
  Pair p;
  int good = 0;
  for (int i = 0; i < 10; ++i) {
    p.a.completions.clear(), p.b.completions.clear();
    Pair::post(p.b, p.eb, {.id = 1}, {p.b.at(0, 8)});
    p.b.until([&] { return p.b.completion(1) != nullptr; });
    p.b.fabric.close(p.eb);
    p.b.until([&] { return p.b.event(EventKind::closed, p.eb) != nullptr; });
    p.until([&] { return p.a.event(EventKind::failed, p.ea) != nullptr; });
    good += p.a.is(1000, CompletionStatus::success) ? 1 : 0;
    p.a.fabric.close(p.ea);
    p.join(8);
  }
  verdict(good == 10, "a message whose send succeeded arrives, though close came at once (10 ×)");
}

void dead_peer() {
  SpikeOptions silent;
  silent.hang_up = false;
  silent.ack_timeout = 14;
  Pair p(silent);
  p.a.fabric.set_error(p.ea);
  p.pause(20ms);
  verdict(p.b.event(EventKind::failed) == nullptr,
          "without the socket an idle peer's ERR goes unnoticed");
  Pair::post(p.b, p.eb, {.id = 1, .op = Opcode::read, .remote = p.exposed(0, 4096)},
             {p.b.at(0, 4096)});
  const TimePoint start = now();
  const bool read = p.until([&] { return p.b.completion(1) != nullptr; }, 4s);
  note("READ from an endpoint in ERR (6 retries of 67 ms): " +
       (read ? std::string(completion_status_name(p.b.completion(1)->status)) + " after " +
                   milliseconds(now() - start)
             : std::string("no completion in 4 s")));
  p.b.fabric.close(p.eb);
  p.until([&] { return p.b.event(EventKind::closed) != nullptr; });
  verdict(p.b.count(1) == 1, "it completes exactly once, at the latest before closed");

  Pair q(silent);
  q.a.fabric.set_error(q.ea);
  q.pause(20ms);
  Pair::post(q.b, q.eb, {.id = 1}, {q.b.at(0, 64)});
  const TimePoint begin = now();
  const bool send = q.until([&] { return q.b.completion(1) != nullptr; }, 4s);
  note("send to an endpoint in ERR: " +
       (send ? std::string(completion_status_name(q.b.completion(1)->status)) + " after " +
                   milliseconds(now() - begin)
             : std::string("no completion in 4 s")));
}

void sleeping() {
  Pair p;
  p.pause(10ms);
  const auto readable = [&](int timeout_ms) {
    pollfd fd{.fd = p.a.fabric.event_fd(), .events = POLLIN};
    return ::poll(&fd, 1, timeout_ms) == 1;
  };
  const bool armed = p.a.fabric.arm();
  const bool quiet = !readable(20);
  Pair::post(p.b, p.eb, {.id = 1}, {p.b.at(0, 8)});
  const bool woken = readable(1000);
  p.until([&] { return p.a.completion(1000) != nullptr; });
  verdict(armed && quiet && woken && p.a.is(1000, CompletionStatus::success),
          "arm: quiet, then a message makes event_fd readable");
  p.b.completions.clear();
  Pair::post(p.b, p.eb, {.id = 2}, {p.b.at(0, 8)});
  p.b.until([&] { return p.b.completion(2) != nullptr; });
  verdict(!p.a.fabric.arm(), "arm after a message came: false");
  p.pause(5ms);
  (void)p.a.fabric.arm();
  (void)p.a.fabric.arm();
  verdict(!readable(5), "arm twice is quiet");
  p.b.fabric.set_error(p.eb);
  verdict(readable(1000), "the peer's ERR makes event_fd readable");
}

/// A window's key travels in the message that was chained to its bind.
struct Lent {
  RemoteAddress remote;
  bool posted = false;
};
Lent lend(Pair& p, WindowId window, std::size_t offset, std::uint32_t length, std::uint64_t id) {
  Lent out;
  out.remote = {.key = p.a.fabric.next_window_key(window), .address = 0};
  LocalSegment key{reinterpret_cast<std::byte*>(&out.remote.key), 8, {}};
  const WorkRequest chain[] = {{.id = id,
                                .op = Opcode::bind,
                                .signalled = false,
                                .window = window,
                                .bind_target = p.a.at(offset, length)},
                               {.id = id + 1, .inline_payload = true, .local = {&key, 1}}};
  Status why;
  out.posted = p.a.fabric.post(p.ea, chain, why) == 2;
  return out;
}

void windows() {
  Pair p({}, 64);
  const WindowId window = p.a.fabric.allocate_window().value();
  p.a.fill(0, 8192, 0x77);
  p.a.completions.clear();
  Lent lent = lend(p, window, 4096, 4096, 100);
  // READ the moment the message is there, with the key that it carries.
  p.b.until([&] { return p.b.completion(1000) != nullptr; });
  std::uint64_t key = 0;
  std::memcpy(&key, p.b.memory.data() + (3 << 20), sizeof key);
  Pair::post(p.b, p.eb, {.id = 1, .op = Opcode::read, .remote = {key, 0}}, {p.b.at(0, 4096)});
  p.until([&] { return p.b.completion(1) != nullptr && p.a.completion(101) != nullptr; });
  verdict(lent.posted && key == lent.remote.key && p.b.is(1, CompletionStatus::success) &&
              p.b.filled(0, 4096, 0x77),
          "BIND + SEND in one chain, READ at once through the window, zero-based");
  verdict(p.a.is(100, CompletionStatus::success) && p.a.is(101, CompletionStatus::success),
          "the unsignalled bind completes with its send");

  Status why;
  WorkRequest again{
      .id = 110, .op = Opcode::bind, .window = window, .bind_target = p.a.at(0, 4096)};
  verdict(p.a.fabric.post(p.ea, {&again, 1}, why) == 0,
          "a bind of a bound window is refused by post");
  const Status busy = p.a.fabric.deregister_memory(p.a.handle);
  verdict(busy.code() == Code::failed_precondition,
          "deregister_memory under a bound window is refused");
  WorkRequest end{.id = 120, .op = Opcode::invalidate, .fence = true, .window = window};
  p.a.fabric.post(p.ea, {&end, 1}, why);
  p.until([&] { return p.a.completion(120) != nullptr; });
  verdict(p.a.is(120, CompletionStatus::success), "invalidate");
  verdict(p.a.fabric.post(p.ea, {&end, 1}, why) == 0,
          "an invalidate of a window that is not bound is refused by post, never tried");

  int good = 0;
  const TimePoint start = now();
  constexpr int kRounds = 254;  // and the bind above: all keys of the window
  std::set<std::uint64_t> keys;
  for (int i = 0; i < kRounds; ++i) {
    p.a.completions.clear(), p.b.completions.clear();
    keys.insert(lent.remote.key);
    lent = lend(p, window, 0, 4096, 100);
    if (!p.b.until([&] { return !p.b.completions.empty(); })) break;
    const std::uint64_t slot = p.b.completions[0].id;
    Pair::post(p.b, p.eb, {.id = slot, .op = Opcode::receive},
               {p.b.at((3 << 20) + (slot - 1000) * 1024, 1024)});
    Pair::post(p.b, p.eb, {.id = 1, .op = Opcode::read, .remote = lent.remote}, {p.b.at(0, 4096)});
    p.until([&] { return p.b.completion(1) != nullptr; });
    p.a.fabric.post(p.ea, {&end, 1}, why);
    p.until([&] { return p.a.completion(120) != nullptr; });
    good += p.b.is(1, CompletionStatus::success) ? 1 : 0;
  }
  keys.insert(lent.remote.key);
  verdict(good == kRounds && keys.size() == 255,
          "255 rounds of bind, message, READ, invalidate on one window, 255 keys");
  note("one round took " + milliseconds((now() - start) / kRounds));
  verdict(!lend(p, window, 0, 4096, 200).posted, "the 256th bind is refused by post");

  Pair::post(p.b, p.eb, {.id = 2, .op = Opcode::read, .remote = lent.remote}, {p.b.at(0, 4096)});
  p.until([&] { return p.b.completion(2) != nullptr && p.a.event(EventKind::failed) != nullptr; });
  verdict(p.b.is(2, CompletionStatus::remote_access) && p.a.event(EventKind::failed) != nullptr,
          "a READ with the key of an invalidated window: remote_access, both ends fail");
  verdict(p.a.fabric.free_window(window).ok(), "free_window of a window that is not bound");
}

void freeing_windows() {
  Pair p({}, 8);
  const WindowId window = p.a.fabric.allocate_window().value();
  Lent lent = lend(p, window, 0, 4096, 100);
  verdict(p.a.fabric.free_window(window).code() == Code::failed_precondition,
          "free_window while the bind has not completed is refused");
  p.until([&] { return p.a.completion(101) != nullptr; });
  const TimePoint start = now();
  verdict(p.a.fabric.free_window(window).ok(), "free_window of a bound window");
  note("took " + milliseconds(now() - start));
  p.b.fill(0, 4096, 0x11);
  Pair::post(p.b, p.eb, {.id = 1, .op = Opcode::read, .remote = lent.remote}, {p.b.at(0, 4096)});
  p.until([&] { return p.b.completion(1) != nullptr; });
  verdict(p.b.is(1, CompletionStatus::remote_access) && p.b.filled(0, 4096, 0x11),
          "a READ after it: remote_access, no byte");

  Pair q({}, 8);
  const WindowId bound = q.a.fabric.allocate_window().value();
  lend(q, bound, 0, 4096, 100);
  q.until([&] { return q.a.completion(101) != nullptr; });
  q.a.fabric.set_error(q.ea);
  q.a.fabric.close(q.ea);
  q.pause(50ms);
  const bool waits = q.a.event(EventKind::closed) == nullptr;
  verdict(q.a.fabric.free_window(bound).ok(), "free_window after the endpoint went to ERR");
  const bool closed = q.until([&] { return q.a.event(EventKind::closed) != nullptr; });
  verdict(waits && closed, "closed waits until the windows bound through the endpoint are freed");
  note("ibv_destroy_qp then took " + milliseconds(q.a.fabric.last_destroy));

  // A bind that is flushed: the window may be in any state, and is freed.
  Pair r({}, 0);
  const WindowId flushed = r.a.fabric.allocate_window().value();
  Pair::post(r.a, r.ea, {.id = 1}, {r.a.at(0, 8)});  // no receive: what follows waits
  lend(r, flushed, 0, 4096, 100);
  r.pause(20ms);
  r.a.fabric.set_error(r.ea);
  verdict(r.a.fabric.free_window(flushed).ok(),
          "free_window in ERR, before the flush of its bind was polled");
  r.until([&] { return r.a.completion(101) != nullptr; });
  verdict(r.a.count(100) == 1 && r.a.is(100, CompletionStatus::flushed),
          "its bind is flushed once");
  r.a.fabric.close(r.ea);
  r.until([&] { return r.a.event(EventKind::closed) != nullptr; });
}

void keys_and_uses() {
  Pair p;
  // A region for windows only: its own key opens nothing.
  const auto memory = plain_memory.allocate(1 << 16).value();
  const MemoryHandle handle =
      p.a.fabric.register_memory(memory, plain_memory, MemoryUse::bulk_window_only).value();
  Result<RemoteAddress> key = p.a.fabric.expose({}, handle, memory.data(), 4096);
  if (key.ok()) {
    Pair::post(p.b, p.eb, {.id = 1, .op = Opcode::read, .remote = *key}, {p.b.at(0, 4096)});
    p.until([&] { return p.b.completion(1) != nullptr; });
    verdict(p.b.is(1, CompletionStatus::remote_access),
            "a bulk_window_only region: its key is refused");
  }
  // The slab's key opens the slab: more than was exposed, and to every group.
  Pair q;
  q.a.fill(8192, 4096, 0x33);
  RemoteAddress exposed = q.a.fabric.expose({1}, q.a.handle, q.a.memory.data(), 4096).value();
  exposed.address += 8192;
  Pair::post(q.b, q.eb, {.id = 1, .op = Opcode::read, .remote = exposed}, {q.b.at(0, 4096)});
  q.until([&] { return q.b.completion(1) != nullptr; });
  note(std::string("a READ beyond the exposed bytes, inside the registration: ") +
       std::string(completion_status_name(q.b.completion(1)->status)));

  const auto pinned = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmPin:")) return line;
    }
    return std::string("VmPin: ?");
  };
  const std::string before = pinned();
  const auto large = plain_memory.allocate(16 << 20).value();
  const MemoryHandle once =
      p.a.fabric.register_memory(large, plain_memory, MemoryUse::bulk).value();
  const std::string first = pinned();
  const MemoryHandle twice =
      p.b.fabric.register_memory(large, plain_memory, MemoryUse::bulk).value();
  note("pinned memory, 16 MiB registered zero, once, twice: " + before + " / " + first + " / " +
       pinned());
  verdict(p.a.fabric.deregister_memory(once).ok() && p.b.fabric.deregister_memory(twice).ok(),
          "deregister_memory");
}

int run(const char* only) {
  const std::pair<const char*, void (*)()> scenarios[] = {
      {"connecting", connecting},
      {"early_message", early_message},
      {"credits", credits},
      {"waiting_for_receive", waiting_for_receive},
      {"reading", reading},
      {"outside_registration", outside_registration},
      {"unsignalled", unsignalled},
      {"errors_and_flushes", errors_and_flushes},
      {"landing_after_flush", landing_after_flush},
      {"last_message", last_message},
      {"dead_peer", dead_peer},
      {"sleeping", sleeping},
      {"windows", windows},
      {"freeing_windows", freeing_windows},
      {"keys_and_uses", keys_and_uses}};
  const TimePoint start = now();
  for (const auto& [name, scenario] : scenarios) {
    if (only != nullptr && std::strcmp(only, name) != 0) continue;
    const TimePoint begin = now();
    std::printf("-- %s\n", name);
    std::fflush(stdout);
    scenario();
    note(milliseconds(now() - begin));
  }
  std::printf("%d failures, %s\n", failures, milliseconds(now() - start).c_str());
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pawl::spike

int main(int argc, char** argv) { return pawl::spike::run(argc > 1 ? argv[1] : nullptr); }
