// SPDX-License-Identifier: Apache-2.0
// The parent's side of one row: two processes, and an eye on them.
#include "demo_row.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "child.h"
#include "fabric/faulty/shared_reuse_table.h"

namespace pawl::tools {

namespace {

// A machine with other work to do is silent for many seconds, and does not hang.
constexpr Duration kStartLimit = 30s;
constexpr Duration kSilenceLimit = 30s;  // without a sign of life
constexpr Duration kStopLimit = 30s;

Row row_of(const Board& board) {
  Row row;
  row.guard = board.settings.guard;
  row.server_fabric = board.settings.server_fabric.data();
  row.client_fabric = board.settings.client_fabric.data();
  row.calls = get(board.calls.calls);
  row.ok = get(board.calls.ok);
  row.timed_out = get(board.calls.timed_out);
  row.failed = get(board.calls.failed);
  const auto both = [&](Counter ProcessBoard::*counter) {
    return get(board.server.*counter) + get(board.client.*counter);
  };
  row.late_reads = both(&ProcessBoard::late_reads);
  row.late_reads_reused = both(&ProcessBoard::late_reads_reused);
  row.stale_refused = both(&ProcessBoard::stale);
  row.wrong_bytes = both(&ProcessBoard::wrong_bytes);
  row.wrong_transfers = both(&ProcessBoard::wrong_transfers);
  row.connections_lost = get(board.calls.connections_lost);
  row.good_bytes = get(board.calls.good_bytes);
  row.p50_ns = get(board.calls.p50_ns);
  row.p99_ns = get(board.calls.p99_ns);
  row.p999_ns = get(board.calls.p999_ns);
  row.p99_small_deadline_ns = get(board.calls.p99_small_deadline_ns);
  row.seconds = static_cast<double>(get(board.calls.elapsed_ns)) / 1e9;
  return row;
}

/// A process with its board: how it is, and for how long it gave no sign of life.
class Watched {
 public:
  Watched(Child child, const ProcessBoard& board) : child_(std::move(child)), board_(board) {}

  [[nodiscard]] Stage stage() const { return board_.stage.load(std::memory_order_acquire); }
  Child& child() { return child_; }

  /// After each tick. Not ok: it failed, crashed or hangs. True: it is done and gone.
  Result<bool> look() {
    if (std::optional<Status> end = child_.ended()) {
      if (end->ok()) return true;
      return stage() == Stage::failed ? named(board_.words()) : *end;
    }
    const std::uint64_t beats = get(board_.heartbeats);
    silence_ = beats == beats_ ? silence_ + kTick : Duration{0};
    beats_ = beats;
    const Duration limit = stage() == Stage::starting ? kStartLimit : kSilenceLimit;
    if (silence_ < limit) return false;
    child_.kill();
    return named(fmt::format("hangs: no sign of life for {} s",
                             std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
  }

 private:
  Status named(const std::string& what) const {
    return Status::with_detail(Code::internal, fmt::format("the {}: {}", child_.name(), what));
  }

  Child child_;
  const ProcessBoard& board_;
  std::uint64_t beats_ = 0;
  Duration silence_{0};
};

class RowRun {
 public:
  RowRun(SharedBoard board, fabric::SharedReuseTable table, const Corpus& corpus)
      : board_(std::move(board)), table_(std::move(table)), corpus_(corpus) {}

  Result<Row> run(const std::function<bool(const Row&)>& show) {
    if (Status up = start(server_, "server", board_->server, show); !up.ok()) return up;
    if (Status up = start(client_, "client", board_->client, show); !up.ok()) return up;
    for (;;) {
      Result<bool> client_done = tick(show);
      if (!client_done.ok()) return client_done.status();
      if (*client_done) break;
    }
    board_->stop_server = true;
    std::optional<Status> end = server_->child().wait(kStopLimit);
    if (!end) {
      return Status::with_detail(Code::internal, "the " + server_->child().name() +
                                                     " hangs: it does not end when it is told to");
    }
    if (!end->ok()) return *end;
    return row_of(*board_);
  }

 private:
  Status start(std::optional<Watched>& slot, const char* role, const ProcessBoard& board,
               const std::function<bool(const Row&)>& show) {
    const std::string guard(guard_name(board_->settings.guard));
    Result<Child> child =
        Child::start(fmt::format("{} process (guard {})", role, guard),
                     {"demo", "--child", role, "--parent", fmt::to_string(::getpid()), "--board-fd",
                      fmt::to_string(board_.fd()), "--corpus-fd", fmt::to_string(corpus_.fd()),
                      "--reuse-fd", fmt::to_string(table_.fd())});
    if (!child.ok()) return child.status();
    slot.emplace(*std::move(child), board);
    while (slot->stage() == Stage::starting) {
      const Result<bool> ticked = tick(show);
      if (!ticked.ok()) return ticked.status();
    }
    return {};
  }

  /// True once the client is done.
  Result<bool> tick(const std::function<bool(const Row&)>& show) {
    pause_for(kTick);
    if (!show(row_of(*board_))) return Status(Code::cancelled, "interrupted");
    Result<bool> server = server_->look();
    if (!server.ok()) return server;
    if (*server) return Status(Code::internal, "the server process ended before it was told to");
    if (!client_) return false;
    return client_->look();
  }

  SharedBoard board_;
  fabric::SharedReuseTable table_;
  const Corpus& corpus_;
  std::optional<Watched> server_;
  std::optional<Watched> client_;
};

}  // namespace

Result<Row> run_row(const RowSettings& settings, const Corpus& corpus,
                    const std::function<bool(const Row&)>& show) {
  Result<SharedBoard> board = SharedBoard::create(settings);
  if (!board.ok()) return board.status();
  Result<fabric::SharedReuseTable> table = fabric::SharedReuseTable::create();
  if (!table.ok()) return table.status();
  RowRun run(*std::move(board), *std::move(table), corpus);
  return run.run(show);
}

}  // namespace pawl::tools
