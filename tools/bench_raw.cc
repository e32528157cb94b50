// SPDX-License-Identifier: Apache-2.0
// The two processes of `--against raw`: the same bytes over plain sockets, without a framework.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "bench_meter.h"
#include "bench_pattern.h"
#include "bench_socket.h"

namespace pawl::tools {

namespace {

constexpr std::size_t kEchoBytes = std::size_t{64} << 10;

using Bytes = std::vector<std::byte>;

/// Before a block that is sent, or instead of one that is asked for.
struct Head {
  std::uint32_t block = 0;
  std::uint32_t thorough = 0;
};
/// After one that was received.
struct Answer {
  std::uint64_t wrong_bytes = 0;
};

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::vector<Bytes> raw_blocks(std::uint64_t size) {
  std::vector<Bytes> blocks(kBenchBlocks, Bytes(size));
  for (std::uint32_t i = 0; i < kBenchBlocks; ++i) fill_pattern(i, blocks[i]);
  return blocks;
}

Status end_of(const Status& received) {
  return received.code() == Code::unavailable ? Status() : received;
}

class RawServer {
 public:
  RawServer(BenchBoard& board, RawSocket socket)
      : board_(board), settings_(board.settings), socket_(std::move(socket)) {}

  Status run() {
    switch (settings_.shape) {
      case Shape::echo:
        return echo();
      case Shape::download:
        return download();
      case Shape::upload:
        break;
    }
    return upload();
  }

 private:
  /// Whole messages or parts of them: it gives back what comes.
  Status echo() {
    Bytes buffer(std::max<std::size_t>(kEchoBytes, settings_.size));
    for (std::uint64_t total = 0;;) {
      const Result<std::size_t> got = socket_.receive_some(buffer);
      if (!got.ok()) return got.status();
      if (*got == 0) return {};
      total += *got;
      board_.served.store(total / settings_.size, std::memory_order_relaxed);
      if (Status sent = socket_.send(std::span(buffer).first(*got)); !sent.ok()) return sent;
    }
  }

  Status download() {
    const std::vector<Bytes> blocks = raw_blocks(settings_.size);
    for (Head head;;) {
      if (Status got = socket_.receive(bytes_of(head)); !got.ok()) return end_of(got);
      add(board_.served);
      if (Status sent = socket_.send(blocks[head.block % kBenchBlocks]); !sent.ok()) return sent;
    }
  }

  Status upload() {
    std::vector<Bytes> landings(settings_.outstanding, Bytes(settings_.size));
    for (std::uint64_t n = 0;; ++n) {
      Head head;
      if (Status got = socket_.receive(bytes_of(head)); !got.ok()) return end_of(got);
      Bytes& landing = landings[n % landings.size()];
      if (Status got = socket_.receive(landing); !got.ok()) return got;
      Answer answer{wrong_bytes(head.block, landing, settings_.size, head.thorough != 0)};
      add(board_.served);
      if (Status sent = socket_.send(bytes_of(answer)); !sent.ok()) return sent;
    }
  }

  BenchBoard& board_;
  const SampleSettings& settings_;
  RawSocket socket_;
};

/// Answers come in the order of the calls.
class RawClient {
 public:
  RawClient(const SampleSettings& settings, RawSocket socket)
      : settings_(settings), socket_(std::move(socket)), began_(settings.outstanding) {
    const bool bulk = settings.shape != Shape::echo;
    if (settings.shape == Shape::upload) blocks_ = raw_blocks(settings.size);
    landings_.resize(bulk ? settings.outstanding : 1);
    for (Bytes& landing : landings_) landing.resize(landing_bytes());
    out_.reserve(settings.outstanding * (bulk ? sizeof(Head) : settings.size));
  }

  Status phase(Meter& meter) {
    ended_ = meter.begun();
    for (;;) {
      if (Status sent = send_calls(meter); !sent.ok()) return sent;
      if (ended_ == meter.begun()) return {};
      if (Status got = settings_.shape == Shape::echo ? take_echoes(meter) : take_one(meter);
          !got.ok()) {
        return got;
      }
    }
  }

 private:
  std::size_t landing_bytes() const {
    if (settings_.shape != Shape::echo) return settings_.size;
    return std::max<std::size_t>(kEchoBytes, settings_.size * 2);
  }
  static std::uint32_t block_of(std::uint64_t call) {
    return static_cast<std::uint32_t>(call % kBenchBlocks);
  }

  /// As many as may be outstanding; small ones in one piece.
  Status send_calls(Meter& meter) {
    out_.clear();
    while (meter.begun() - ended_ < settings_.outstanding) {
      const TimePoint now = meter.now();
      if (!meter.begin(now)) break;
      const std::uint64_t call = meter.begun();
      began_[call % began_.size()] = now;
      Head head{block_of(call), meter.thorough() ? 1u : 0u};
      if (settings_.shape == Shape::upload) {
        Bytes& block = blocks_[head.block];
        std::array<iovec, 2> parts{iovec{&head, sizeof(head)}, iovec{block.data(), block.size()}};
        if (Status sent = socket_.send(parts); !sent.ok()) return sent;
      } else {
        const std::size_t at = out_.size();
        out_.resize(at + (settings_.shape == Shape::echo ? settings_.size : sizeof(head)));
        if (settings_.shape == Shape::echo) {
          fill_pattern(call, std::span(out_).subspan(at));
        } else {
          std::memcpy(&out_[at], &head, sizeof(head));
        }
      }
    }
    return out_.empty() ? Status() : socket_.send(out_);
  }

  void end(Meter& meter, TimePoint now, std::uint64_t wrong) {
    ++ended_;
    meter.end(began_[ended_ % began_.size()], now, wrong);
  }

  Status take_one(Meter& meter) {
    const std::uint64_t call = ended_ + 1;
    if (settings_.shape == Shape::upload) {
      Answer answer;
      if (Status got = socket_.receive(bytes_of(answer)); !got.ok()) return got;
      end(meter, meter.now(), answer.wrong_bytes);
      return {};
    }
    Bytes& landing = landings_[call % landings_.size()];
    if (Status got = socket_.receive(landing); !got.ok()) return got;
    end(meter, meter.now(), wrong_bytes(block_of(call), landing, settings_.size, meter.thorough()));
    return {};
  }

  /// All that have come.
  Status take_echoes(Meter& meter) {
    Bytes& in = landings_[0];
    const Result<std::size_t> got = socket_.receive_some(std::span(in).subspan(partial_));
    if (!got.ok()) return got.status();
    if (*got == 0) return Status(Code::unavailable, "the raw server went away");
    const TimePoint now = meter.now();
    std::size_t at = 0;
    for (partial_ += *got; partial_ >= settings_.size; partial_ -= settings_.size) {
      const auto echo = std::span<const std::byte>(in).subspan(at, settings_.size);
      end(meter, now, wrong_bytes(ended_ + 1, echo, settings_.size));
      at += settings_.size;
    }
    std::memmove(in.data(), in.data() + at, partial_);
    return {};
  }

  const SampleSettings& settings_;
  RawSocket socket_;
  std::vector<TimePoint> began_;  // by the number of the call
  std::uint64_t ended_ = 0;
  std::size_t partial_ = 0;  // of an echo, at the start of the landing
  std::vector<Bytes> blocks_;
  std::vector<Bytes> landings_;
  Bytes out_;
};

}  // namespace

Status serve_raw(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  Result<RawListener> listener = RawListener::listen(settings.socket_buffer_bytes);
  if (!listener.ok()) return listener.status();
  board.server.say(Stage::ready, listener->address());
  Result<RawSocket> socket = listener->accept(settings.spin);
  if (!socket.ok()) return socket.status();
  RawServer server(board, *std::move(socket));
  return server.run();
}

Status call_raw(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  Result<RawSocket> socket =
      RawSocket::connect(board.server.words(), settings.spin, settings.socket_buffer_bytes);
  if (!socket.ok()) return socket.status();
  RawClient client(settings, *std::move(socket));

  Meter warm = Meter::warm_up(settings);
  if (Status status = client.phase(warm); !status.ok()) return status;
  const std::uint64_t served_before = get(board.served);
  Meter meter = Meter::measured(settings);
  const CpuTimes cpu(board.server_process);
  if (Status status = client.phase(meter); !status.ok()) return status;
  cpu.write(board.result);
  meter.write(settings.size, board.result);
  board.result.wrong_bytes += warm.wrong_bytes();
  board.result.counts.served = get(board.served) - served_before;
  return {};
}

}  // namespace pawl::tools
