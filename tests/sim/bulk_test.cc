// SPDX-License-Identifier: Apache-2.0
// Bulk as users meet it: segments, ranges, own buffers, regions, tickets, reverse calls, and what
// happens to buffers when calls end early.
#include <string>

#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::Faults;
using testing::fill;
using testing::FunctionService;
using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kGet = make_method("test.Bulk/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Bulk/Put", BulkDirection::upload);
constexpr std::size_t kBytes = 100'000;

class BulkTest : public testing::StackFixture {
 protected:
  using Get = std::function<void(Call&, Download&)>;
  using Put = std::function<Task<Result<Payload>>(Call&, Upload&)>;

  BulkTest() {
    service_.add(kGet,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   get_(call, out);
                   co_return Payload::of("got");
                 });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put_(call, in);
    });
  }
  Outcome<Pulled<Payload>> get(Into into, const CallOptions& options = {}) {
    return world_.run(*client_, channel_.call(kGet, Payload(), std::move(into), options));
  }
  Outcome<Payload> put(Lend lend, const CallOptions& options = {}) {
    return world_.run(*client_, channel_.call(kPut, Payload(), std::move(lend), options));
  }
  void delay_reads(Duration max) {
    Faults faults;
    faults.read_delay = 1;
    faults.read_delay_max = max;
    world_.set_faults(faults);
  }

  Get get_;
  Put put_;
};

TEST_F(BulkTest, SegmentsHaveEachTheirOwnStatus) {
  start();
  get_ = [this](Call&, Download& out) {
    out.add(block_of(*server_, 1, kBytes));
    out.add(Status(Code::not_found, "no such block"));
    out.add(block_of(*server_, 3, 10));
    out.add(Block());
    out.add(block_of(*server_, 5, kBytes).slice(5000, 50'000));
  };
  const Outcome<Pulled<Payload>> got = get(into(client_->pool()));
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_EQ(got->reply().text(), "got");
  const auto& parts = got->parts();
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_TRUE(holds(parts[0]->bytes(), 1));
  EXPECT_EQ(parts[1].status().code(), Code::not_found);
  EXPECT_EQ(parts[1].status().what(), "the peer's handler gave this code for this segment");
  EXPECT_EQ(parts[2]->size(), 10u);
  EXPECT_TRUE(holds(parts[2]->bytes(), 3));
  EXPECT_TRUE(parts[3]->empty());
  EXPECT_EQ(parts[4]->size(), 50'000u);
  EXPECT_TRUE(holds(parts[4]->bytes(), 5, 5000));
}

TEST_F(BulkTest, AThousandSegmentsOneWithdrawn) {
  start();
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 1000; ++i) blocks.push_back(block_of(*server_, i, 5000));
  get_ = [&](Call&, Download& out) {
    for (const Block& block : blocks) out.add(block);
  };
  delay_reads(10ms);
  // The owner takes one buffer back while the READs are under way; the others stay good.
  std::optional<Outcome<Pulled<Payload>>> got;
  std::optional<Started> call;
  {
    const Poller::Scope scope(client_->poller());
    call.emplace(pawl::start(channel_.call(kGet, Payload(), into(client_->pool())),
                             Callback<Outcome<Pulled<Payload>>>{
                                 [](void* to, Outcome<Pulled<Payload>> value) {
                                   static_cast<decltype(got)*>(to)->emplace(std::move(value));
                                 },
                                 &got}));
  }
  ASSERT_TRUE(world_.run_until([&] { return server_->stats().leases_lent == 1; }));
  std::move(blocks[500]).retire();
  ASSERT_TRUE(world_.run_until([&] { return got.has_value(); }));
  ASSERT_TRUE(got->ok()) << got->to_string();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Result<Block>& part = (*got)->parts()[i];
    if (i == 500) {
      EXPECT_EQ(part.status().code(), Code::stale);
    } else {
      ASSERT_TRUE(part.ok()) << i;
      EXPECT_TRUE(holds(part->bytes(), i)) << i;
    }
  }
  got.reset();
  blocks.clear();
  expect_quiet();
}

TEST_F(BulkTest, ARangeOfEachSegment) {
  start();
  get_ = [this](Call&, Download& out) {
    out.add(block_of(*server_, 1, kBytes));
    out.add(block_of(*server_, 2, 100));
  };
  const Outcome<Pulled<Payload>> got = get(into(client_->pool()).range({50, 30'000}));
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_EQ(got->parts()[0]->size(), 30'000u);
  EXPECT_TRUE(holds(got->parts()[0]->bytes(), 1, 50));
  EXPECT_EQ(got->parts()[1]->size(), 50u);
  EXPECT_TRUE(holds(got->parts()[1]->bytes(), 2, 50));
}

TEST_F(BulkTest, IntoOwnBuffersAndBackAfterAFailure) {
  start();
  get_ = [this](Call&, Download& out) { out.add(block_of(*server_, 1, kBytes)); };
  Outcome<Pulled<Payload>> got = get(into(*client_->pool().try_acquire(kBytes)));
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_TRUE(holds(got->part()->bytes(), 1));

  delay_reads(1ns);
  Faults faults;
  faults.read_delay = 1;
  faults.read_delay_max = 300ms;
  world_.set_faults(faults);
  int returning = 0;
  for (int i = 0; i < 20; ++i) {
    Outcome<Pulled<Payload>> late = get(into(*client_->pool().try_acquire(kBytes)), within(10ms));
    if (late.ok()) continue;
    EXPECT_EQ(late.status().code(), Code::deadline);
    if (late.whereabouts() == Whereabouts::returning) ++returning;
    const TimePoint asked = world_.now();
    const std::vector<Buffer> back = world_.run(*client_, std::move(late.buffers_back()));
    ASSERT_EQ(back.size(), 1u);
    EXPECT_EQ(back[0].size(), 0u) << "a buffer of a failed download comes back empty";
    EXPECT_LE(world_.now() - asked, Duration(350ms));
  }
  EXPECT_GT(returning, 10);
}

TEST_F(BulkTest, APlaceThatIsTooSmallIsNamedAndTheBufferComesBack) {
  start();
  get_ = [this](Call&, Download& out) { out.add(block_of(*server_, 1, kBytes)); };
  Outcome<Pulled<Payload>> got = get(into(*client_->pool().try_acquire(4096)));
  EXPECT_EQ(got.status().code(), Code::too_large);
  EXPECT_EQ(got.ran(), Ran::yes);
  EXPECT_EQ(world_.run(*client_, std::move(got.buffers_back())).size(), 1u);
  expect_quiet();
}

TEST_F(BulkTest, RegionsLendAndLand) {
  start();
  alignas(4096) static std::byte server_memory[16 * 4096];
  alignas(4096) static std::byte client_memory[32 * 4096];
  Result<Region> theirs = Region::create(server_->pool(), server_memory, nullptr);
  Result<Region> ours = Region::create(client_->pool(), client_memory, nullptr);
  ASSERT_TRUE(theirs.ok() && ours.ok());
  fill(*theirs->reuse(0, 16), 9);
  get_ = [&](Call&, Download& out) { out.add(*theirs->block(2, 4)); };
  const Outcome<Pulled<Payload>> got = get(into(*ours, {8 * 4096, 4 * 4096}));
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_TRUE(holds(got->part()->bytes(), 9, 2 * 4096));
  EXPECT_EQ(got->part()->bytes().data(), client_memory + 8 * 4096);
}

TEST_F(BulkTest, AReusedRegionBlockIsStaleForItsReader) {
  start();
  alignas(4096) static std::byte memory[16 * 4096];
  Result<Region> region = Region::create(server_->pool(), memory, nullptr);
  ASSERT_TRUE(region.ok());
  get_ = [&](Call&, Download& out) { out.add(*region->block(0, 16)); };
  delay_reads(20ms);
  world_.run_for(1ms);
  int stale = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    fill(*region->reuse(0, 16), i);
    std::optional<Outcome<Pulled<Payload>>> got;
    Started call;
    {
      const Poller::Scope scope(client_->poller());
      call = pawl::start(channel_.call(kGet, Payload(), into(client_->pool())),
                         Callback<Outcome<Pulled<Payload>>>{
                             [](void* to, Outcome<Pulled<Payload>> value) {
                               static_cast<decltype(got)*>(to)->emplace(std::move(value));
                             },
                             &got});
    }
    world_.run_for(10ms);
    fill(*region->reuse(0, 16), i + 1000);
    ASSERT_TRUE(world_.run_until([&] { return got.has_value(); }));
    if (got->ok()) {
      EXPECT_TRUE(holds((*got)->part()->bytes(), i));
    } else {
      EXPECT_EQ(got->status().code(), Code::stale);
      ++stale;
    }
  }
  EXPECT_GT(stale, 5);
}

TEST_F(BulkTest, ALentBufferIsFreeTheMomentItsCallTimedOut) {
  start();
  put_ = [](Call& call, Upload& in) -> Task<Result<Payload>> {
    auto buffer = co_await ok(in.pull(call.pool()));
    co_return Payload();
  };
  ASSERT_TRUE(put(lend(block_of(*client_, 1, kBytes))).ok());
  delay_reads(300ms);
  const Outcome<Payload> outcome = put(lend(block_of(*client_, 2, kBytes)), within(1ms));
  EXPECT_EQ(outcome.status().code(), Code::deadline);
  EXPECT_EQ(client_->stats().pool.bytes_in_use, 0u);
  EXPECT_EQ(client_->stats().pool.leases_live, 0u);
  expect_quiet();
}

TEST_F(BulkTest, HoldUntilAckKeepsTheBufferUntilNothingMoreIsRead) {
  ChannelOptions options;
  options.hold_until_ack = true;
  start({}, {}, options);
  put_ = [](Call& call, Upload& in) -> Task<Result<Payload>> {
    auto buffer = co_await ok(in.pull(call.pool()));
    co_return Payload();
  };
  ASSERT_TRUE(put(lend(block_of(*client_, 1, kBytes))).ok());
  EXPECT_EQ(client_->stats().pool.bytes_in_use, 0u);
  delay_reads(300ms);
  const Outcome<Payload> outcome = put(lend(block_of(*client_, 2, kBytes)), within(1ms));
  EXPECT_EQ(outcome.status().code(), Code::deadline);
  EXPECT_GT(client_->stats().pool.bytes_in_use, 0u);
  // It comes back with the acknowledgement, not before the READs at the other end are over.
  ASSERT_TRUE(world_.run_until([&] { return client_->stats().pool.bytes_in_use == 0; }, 1s));
  EXPECT_EQ(server_->stats().transfers_live, 0u);
  expect_quiet();
}

TEST_F(BulkTest, UploadsAreJoinedPulledInPartsAndCheckedTogether) {
  start();
  std::vector<bool> good;
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    EXPECT_EQ(in.segments(), 2u);
    EXPECT_EQ(in.size(), 150'000u);
    auto second = co_await ok(in.pull_segment(1, call.pool()));
    good.push_back(holds(second.bytes(), 2));
    auto across = co_await ok(in.pull(call.pool(), {90'000, 20'000}));
    good.push_back(holds(across.bytes().first(10'000), 1, 90'000));
    good.push_back(holds(across.bytes().subspan(10'000), 2));
    (void)co_await ok(in.pull_unconfirmed(call.pool(), {0, 60'000}));
    (void)co_await ok(in.pull_unconfirmed(call.pool(), {60'000, 60'000}));
    auto both = co_await ok(in.confirm());
    good.push_back(both.size() == 2 && holds(both[0].bytes(), 1));
    good.push_back(holds(both[1].bytes().first(40'000), 1, 60'000));
    auto outside = co_await in.pull(call.pool(), {200'000, 1});
    good.push_back(outside.status().code() == Code::invalid_argument);
    co_return Payload();
  };
  const Outcome<Payload> outcome =
      put(lend(block_of(*client_, 1, 100'000), block_of(*client_, 2, 50'000)));
  ASSERT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_EQ(good, std::vector<bool>(6, true));
  EXPECT_EQ(client_->stats().confirms_valid, 3u);
  expect_quiet();
}

TEST_F(BulkTest, TheServerCallsItsCallerBackOverTheSameConnection) {
  FunctionService callbacks;
  callbacks.add(
      kGet,
      [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
        out.add(block_of(*client_, 77, kBytes));
        co_return Payload::of("back");
      });
  server_ = &world_.add("server");
  client_ = &world_.add("client");
  serve();
  channel_ = client_->channel("server:1", {}, callbacks);
  bool good = false;
  put_ = [&](Call& call, Upload&) -> Task<Result<Payload>> {
    const Channel caller = call.caller();
    auto operation = caller.call(kGet, Payload(), into(call.pool()), call.inherit());
    auto got = co_await ok(std::move(operation));
    good = holds(got.part()->bytes(), 77);
    co_return Payload();
  };
  const Outcome<Payload> outcome = put(Lend());
  ASSERT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_TRUE(good);
  EXPECT_EQ(server_->stats().connections_opened, 1u);
  expect_quiet();
}

TEST_F(BulkTest, ATicketIsPulledUntilItIsOver) {
  start();
  Result<Ticket> ticket = server_->issue_ticket(
      {block_of(*server_, 1, kBytes), block_of(*server_, 2, 100)}, "server:1", 100ms);
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  EXPECT_LE(ticket->bytes().size(), kTicketBytesMax);
  const auto pull = [&] {
    return world_.run(*client_, client_->pull(*ticket, into(client_->pool())));
  };
  for (int i = 0; i < 2; ++i) {
    const Outcome<Pulled<Payload>> got = pull();
    ASSERT_TRUE(got.ok()) << got.to_string();
    EXPECT_TRUE(holds(got->parts()[0]->bytes(), 1));
    EXPECT_TRUE(holds(got->parts()[1]->bytes(), 2));
  }
  // Ids count up, and every handshake has the incarnation: the generation is what cannot be
  // guessed.
  std::string guessed(ticket->bytes());
  guessed[2 + 2 * sizeof(std::uint64_t)] ^= 2;
  const Ticket other(guessed);
  EXPECT_EQ(world_.run(*client_, client_->pull(other, into(client_->pool()))).status().code(),
            Code::stale);
  world_.run_for(100ms);
  EXPECT_EQ(pull().status().code(), Code::stale);
  EXPECT_EQ(server_->stats().pool.bytes_in_use, 0u) << "its deadline ends it, not its last use";
  const Ticket garbage(std::string("not a ticket"));
  EXPECT_EQ(world_.run(*client_, client_->pull(garbage, into(client_->pool()))).status().code(),
            Code::invalid_argument);
  restart_server();
  (void)pull();  // finds that the connection is gone
  EXPECT_EQ(pull().status().code(), Code::stale);
}

TEST_F(BulkTest, TicketsGoAtTheirDeadlinesInWhateverOrderTheyWereIssued) {
  NodeOptions options;
  options.tickets_max = 3;
  start(options);
  const auto issue = [&](Duration deadline) {
    return server_->issue_ticket({block_of(*server_, 1, 4096)}, "server:1", deadline).status();
  };
  for (const Duration deadline : {Duration(200ms), Duration(50ms), Duration(100ms)}) {
    ASSERT_TRUE(issue(deadline).ok());
  }
  EXPECT_EQ(issue(50ms).code(), Code::resource_exhausted);
  const TimePoint issued = world_.now();
  for (const std::size_t left : {2u, 1u, 0u}) {
    ASSERT_TRUE(
        world_.run_until([&] { return server_->stats().pool.bytes_in_use == left * 4096; }, 300ms));
    const Duration after = left == 2 ? Duration(50ms) : left == 1 ? Duration(100ms) : 200ms;
    EXPECT_EQ(world_.now(), issued + after);
  }
  expect_quiet();
}

TEST_F(BulkTest, CancelReachesTheHandlerAndItsPull) {
  start();
  std::optional<Code> pull_ended, told;
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    auto pulled = co_await in.pull(call.pool());
    pull_ended = pulled.status().code();
    told = (co_await call.on_cancelled()).code();
    co_return Payload();
  };
  (void)put(lend(block_of(*client_, 1, kBytes)), within(20ms));
  pull_ended.reset();
  delay_reads(300ms);
  {
    const Poller::Scope scope(client_->poller());
    Started call = pawl::start(channel_.call(kPut, Payload(), lend(block_of(*client_, 1, kBytes))),
                               Callback<Outcome<Payload>>{[](void*, Outcome<Payload>) {
                                 ADD_FAILURE() << "a dropped call calls nobody back";
                               }});
    world_.run_for(1ms);
    call.drop();
  }
  world_.run_for(1ms);
  EXPECT_EQ(pull_ended, Code::cancelled);
  EXPECT_EQ(told, Code::cancelled);
  expect_quiet();
}

TEST_F(BulkTest, DisconnectBreaksTheConnectionBeforeItReuses) {
  NodeOptions node;
  node.allow_baselines = true;
  ChannelOptions options;
  options.guard = Guard::disconnect;
  start(node, node, options);
  int wrong = 0;
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    auto buffer = co_await ok(in.pull(call.pool()));
    if (!holds(buffer.bytes(), 1)) ++wrong;
    co_return Payload();
  };
  ASSERT_TRUE(put(lend(block_of(*client_, 1, kBytes))).ok());
  delay_reads(300ms);
  for (int i = 0; i < 10; ++i) {
    const Outcome<Payload> outcome = put(lend(block_of(*client_, 1, kBytes)), within(5ms));
    const Block next = block_of(*client_, 2, kBytes);  // the same memory, other bytes
    world_.run_for(400ms);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(client_->stats().connections_lost, 5u);
  expect_quiet();
}

TEST_F(BulkTest, ABaselineThatIsNotAllowedIsRefused) {
  ChannelOptions options;
  options.guard = Guard::none;
  start({}, {}, options);
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> { co_return Payload(); };
  const Outcome<Payload> outcome = put(lend(block_of(*client_, 1, kBytes)));
  EXPECT_EQ(outcome.status().code(), Code::unimplemented);
  EXPECT_EQ(outcome.ran(), Ran::no);
}

TEST_F(BulkTest, WrongUseIsNamed) {
  start();
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> { co_return Payload(); };
  get_ = [this](Call&, Download& out) { out.add(block_of(*server_, 1, kBytes)); };
  EXPECT_EQ(world_.run(*client_, channel_.call(kGet, Payload(), lend(block_of(*client_, 1, 10))))
                .status()
                .code(),
            Code::invalid_argument);
  EXPECT_EQ(
      world_.run(*client_, channel_.call(kPut, Payload(), into(client_->pool()))).status().code(),
      Code::invalid_argument);
  EXPECT_EQ(world_.run(*client_, channel_.call(kGet, Payload())).status().code(),
            Code::invalid_argument);
  expect_quiet();
}

TEST_F(BulkTest, AFullHandlerQueueSheds) {
  NodeOptions options;
  options.handler_queue_max = 2;
  options.handlers_per_turn = 1;
  start(options);
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> { co_return Payload(); };
  (void)put(Lend());
  int shed = 0, done = 0;
  std::vector<Started> calls;
  struct Counts {
    int &shed, &done;
  } counts{shed, done};
  {
    const Poller::Scope scope(client_->poller());
    for (int i = 0; i < 50; ++i) {
      calls.push_back(
          pawl::start(channel_.call(kPut, Payload()),
                      Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                                   auto* counted = static_cast<Counts*>(to);
                                                   ++counted->done;
                                                   if (outcome.status().code() != Code::overloaded)
                                                     return;
                                                   EXPECT_EQ(outcome.ran(), Ran::no);
                                                   ++counted->shed;
                                                 },
                                                 &counts}));
    }
  }
  ASSERT_TRUE(world_.run_until([&] { return done == 50; }));
  EXPECT_GT(shed, 0);
  EXPECT_LT(shed, 50);
  EXPECT_EQ(server_->stats().served_shed, static_cast<std::uint64_t>(shed));
}

TEST_F(BulkTest, ARestartedServerIsNoticedAndTheCallSaysWhetherItRan) {
  start();
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> {
    co_await sleep_for(1s);
    co_return Payload();
  };
  std::optional<Outcome<Payload>> outcome;
  Started call;
  {
    const Poller::Scope scope(client_->poller());
    call = pawl::start(
        channel_.call(kPut, Payload()),
        Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> value) {
                                     static_cast<decltype(outcome)*>(to)->emplace(std::move(value));
                                   },
                                   &outcome});
  }
  world_.run_for(10ms);
  world_.fail_connections("client", "server");
  ASSERT_TRUE(world_.run_until([&] { return outcome.has_value(); }));
  EXPECT_EQ(outcome->status().code(), Code::connection_lost);
  EXPECT_EQ(outcome->ran(), Ran::unknown);
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> { co_return Payload::of("again"); };
  restart_server();
  const Outcome<Payload> again = put(Lend());
  ASSERT_TRUE(again.ok()) << again.to_string();
}

}  // namespace
}  // namespace pawl
