// SPDX-License-Identifier: Apache-2.0
// The server process of `pawl demo`.
#include <utility>

#include "demo.pawl.h"
#include "demo_board.h"
#include "demo_cache.h"
#include "demo_corpus.h"
#include "demo_files.h"
#include "demo_node.h"
#include "demo_reuse.h"
#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/node.h"

namespace pawl::tools {

namespace {

class Store final : public demo::StoreService {
 public:
  Store(const Corpus& corpus, const RowSettings& settings, ReuseBook& book, ProcessBoard& board)
      : files_(corpus),
        // Guard disconnect takes back what timed out and knows nothing of evictions: whoever uses
        // it lets the readers finish.
        cache_(corpus, settings.guard != Guard::disconnect),
        book_(book),
        board_(board) {}

  void stop_workers() { files_.stop_workers(); }

 private:
  Task<Result<demo::PutReply>> put(Call& call, const demo::PutRequest& request,
                                   Upload& in) override {
    const std::uint32_t file = request.file();
    if (file >= files_.corpus().size()) co_return Status(Code::not_found, "no such file");
    auto buffer = co_await ok(in.pull(call.pool()));  // accepted: from here on the bytes are ours
    BufferUse use(book_, buffer.bytes());
    Block block = std::move(buffer).freeze();
    const auto wrong = co_await ok(files_.wrong_bytes(file, block));
    if (wrong == 0) {
      cache_.insert(file, std::move(block), std::move(use));
    } else {  // not kept, so that each wrong byte is counted where it was accepted
      add(board_.wrong_bytes, wrong);
      add(board_.wrong_transfers);
    }
    co_return demo::PutReply();
  }

  Task<Result<demo::GetReply>> get(Call& call, const demo::GetRequest& request,
                                   Download& out) override {
    const std::uint32_t file = request.file();
    if (file >= files_.corpus().size()) co_return Status(Code::not_found, "no such file");
    Block block = cache_.find(file);
    if (!block) {
      cache_.make_room(file);
      const std::size_t bytes = files_.corpus().file(file).size();
      auto buffer = co_await ok(call.pool().acquire(bytes, call.remaining()));
      BufferUse use(book_, buffer.bytes());
      block = co_await ok(files_.fill(file, std::move(buffer)));
      cache_.insert(file, block, std::move(use));
    }
    out.add(std::move(block));
    co_return demo::GetReply();
  }

  Files files_;
  Cache cache_;
  ReuseBook& book_;
  ProcessBoard& board_;
};

Task<Status> until_stopped(Node& node, Board& board) {
  while (!board.stop_server.load()) {
    add(board.server.heartbeats);
    board.server.stale.store(node.stats().transfers_stale, std::memory_order_relaxed);
    co_await sleep_for(kTick);
  }
  co_return Status();
}

Status serve(const Corpus& corpus, fabric::SharedReuseTable& table, Board& board) {
  const RowSettings& settings = board.settings;
  ReuseBook book(table, board.server);
  HoldingSource source(settings.server_fabric.data(),
                       plan_of(settings, settings.seed ^ 0x5e7, book), &book);
  ErrorSink log;
  Store store(corpus, settings, book, board.server);
  Node node(node_options(settings, "demo server", source, log));
  Result<Server> serving = node.serve(settings.listen.data(), store);
  if (!serving.ok()) return serving.status();
  board.server.say(Stage::ready, serving->address());
  Status status = node.block_on(until_stopped(node, board));
  store.stop_workers();
  return status;
}

}  // namespace

int run_server(const ChildFiles& files) {
  Result<SharedBoard> board = SharedBoard::attach(files.board);
  if (!board.ok()) return 1;
  Result<Corpus> corpus = Corpus::attach(files.corpus);
  Result<fabric::SharedReuseTable> table = fabric::SharedReuseTable::attach(files.reuse);
  Status status = corpus.ok() ? table.status() : corpus.status();
  if (status.ok()) status = serve(*corpus, *table, **board);
  (*board)->server.say(status.ok() ? Stage::done : Stage::failed, status.to_string());
  return status.ok() ? 0 : 1;
}

}  // namespace pawl::tools
