// SPDX-License-Identifier: Apache-2.0
// The loop-back test: a server and a client in this process.
#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "doctor.h"
#include "pawl/node.h"

namespace pawl::tools {

namespace {

constexpr Method kFetch = make_method("pawl.Doctor/Fetch", BulkDirection::download);
constexpr Method kStore = make_method("pawl.Doctor/Store", BulkDirection::upload);
constexpr Method kEcho = make_method("pawl.Doctor/Echo");
constexpr std::array kMethods = {kFetch, kStore, kEcho};

// Around what travels inside a message, a packet, a page, a chunk, and a large buffer.
constexpr std::size_t kSizes[] = {1, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, 8 << 20};
constexpr int kEchoes = 200;

std::byte expected(std::size_t bytes, std::size_t i) {
  return static_cast<std::byte>((i * 31 + bytes * 7) >> 3);
}
void fill(std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = expected(out.size(), i);
}
bool right(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != expected(bytes.size(), i)) return false;
  }
  return true;
}

class Mirror final : public Service {
 public:
  [[nodiscard]] std::span<const Method> methods() const override { return kMethods; }
  Operation<Result<Payload>> handle(std::size_t method, Call& call,
                                    std::span<const std::byte> request, Upload& in,
                                    Download& out) override {
    switch (method) {
      case 0:
        return fetch(call, request, out).operation();
      case 1:
        return store(call, in).operation();
      default:
        return echo(request).operation();
    }
  }

 private:
  static Task<Result<Payload>> fetch(Call& call, std::span<const std::byte> request,
                                     Download& out) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, request.data(), sizeof(bytes));
    auto buffer = co_await ok(call.pool().acquire(bytes));
    fill(buffer.bytes());
    out.add(std::move(buffer).freeze());
    co_return Payload();
  }
  static Task<Result<Payload>> store(Call& call, Upload& in) {
    auto buffer = co_await ok(in.pull(call.pool()));
    if (!right(std::as_const(buffer).bytes())) {
      co_return Status(Code::internal, "an upload arrived with other bytes");
    }
    co_return Payload();
  }
  static Task<Result<Payload>> echo(std::span<const std::byte> request) {
    co_return Payload(request);
  }
};

/// Both directions of every size; the first thing that goes wrong.
Status exchange(Node& client, const Channel& channel) {
  for (const std::size_t bytes : kSizes) {
    const std::uint64_t wanted = bytes;
    auto got = client.block_on(
        channel.call(kFetch, Payload(std::as_bytes(std::span(&wanted, 1))), into(client.pool())));
    if (!got.ok()) return got.status();
    const Result<Block>& part = got->part();
    if (!part.ok()) return part.status();
    if (part->size() != bytes || !right(part->bytes())) {
      return Status::with_detail(Code::internal,
                                 fmt::format("a download of {} bytes arrived with others", bytes));
    }
    Result<Buffer> buffer = client.block_on(client.pool().acquire(bytes));
    if (!buffer.ok()) return buffer.status();
    fill(buffer->bytes());
    auto put =
        client.block_on(channel.call(kStore, Payload(), lend((*std::move(buffer)).freeze())));
    if (!put.ok()) return put.status();
  }
  return {};
}

Result<Duration> echo_time(Node& client, const Channel& channel) {
  const SteadyClock clock;
  const TimePoint before = clock.now();
  for (int i = 0; i < kEchoes; ++i) {
    auto echo = client.block_on(channel.call(kEcho, Payload::of("doctor")));
    if (!echo.ok()) return echo.status();
  }
  return (clock.now() - before) / kEchoes;
}

Result<Duration> run(const std::string& fabric) {
  NodeOptions options;
  options.fabric = fabric;
  options.long_turn = std::chrono::hours(1);
  Mirror mirror;
  Node server(options);
  if (Status up = server.status(); !up.ok()) return up;
  Result<Server> serving = server.serve("127.0.0.1:0", mirror);
  if (!serving.ok()) return serving.status();
  server.run_background();
  Node client(options);
  if (Status up = client.status(); !up.ok()) return up;
  const Channel channel = client.channel(serving->address());
  if (Status done = exchange(client, channel); !done.ok()) return done;
  return echo_time(client, channel);
}

}  // namespace

Finding loop_back(const std::string& fabric) {
  Finding finding;
  finding.check = "loop-back";
  const Result<Duration> done = run(fabric);
  if (done.ok()) {
    finding.evidence =
        fmt::format("{}: {} sizes up to 8 MiB right, both directions; a call takes {:.0f} us",
                    fabric, std::size(kSizes), static_cast<double>(done->count()) / 1000);
  } else {
    finding.level = Finding::Level::failure;
    finding.evidence = fabric + ": " + done.status().to_string();
    finding.mend = "see what the sentence names; then pawl doctor again";
  }
  return finding;
}

}  // namespace pawl::tools
