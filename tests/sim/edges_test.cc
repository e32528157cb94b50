// SPDX-License-Identifier: Apache-2.0
// Calls at the edges: ends inside their own start, answers without bytes, long requests that are
// dropped in the middle, channels that do not wait.
#include <string>
#include <vector>

#include "pawl/task_group.h"
#include "pawl/when.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::Faults;
using testing::payload;

constexpr Method kGet = make_method("test.Edges/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Edges/Put", BulkDirection::upload);
constexpr Method kEcho = make_method("test.Edges/Echo");
constexpr Method kNote = make_method("test.Edges/Note", BulkDirection::none, false, true);

class EdgesTest : public testing::StackFixture {
 protected:
  EdgesTest() {
    service_.add(kGet,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   get_(call, out);
                   co_return Payload();
                 });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put_(call, in);
    });
    service_.add(kEcho, [this](Call& call, std::span<const std::byte> request, Upload&, Download&) {
      return echo_(call, request);
    });
    echo_ = [](Call&, std::span<const std::byte> request) -> Task<Result<Payload>> {
      co_return Payload(request);
    };
  }
  Outcome<Payload> echo(const CallOptions& options = {}) {
    return world_.run(*client_, channel_.call(kEcho, Payload::of("x"), options));
  }

  std::function<void(Call&, Download&)> get_;
  std::function<Task<Result<Payload>>(Call&, Upload&)> put_;
  std::function<Task<Result<Payload>>(Call&, std::span<const std::byte>)> echo_;
};

// Memory is free and the bytes came with the answer: the call ends inside its own acquire, and the
// coroutine that awaited it is gone before that returns. The address sanitizer looks on.
TEST_F(EdgesTest, SmallDownloadsAreAwaitedAndForgotten) {
  start();
  get_ = [](Call& call, Download& out) {
    const std::string text = "bytes";
    out.add(*call.pool().copy_of(std::as_bytes(std::span(text))));
  };
  const auto many = [&]() -> Task<Status> {
    for (int i = 0; i < 20; ++i) {
      auto got = co_await ok(channel_.call(kGet, Payload(), into(client_->pool())));
      EXPECT_EQ(got.parts()[0]->size(), 5u);
    }
    co_return Status();
  };
  const Status status = world_.run(*client_, many());
  EXPECT_TRUE(status.ok()) << status.to_string();
  expect_quiet();
}

TEST_F(EdgesTest, MoreThan1024PartsAreTooLargeAndHarmNobody) {
  start();
  get_ = [](Call&, Download& out) {
    for (int i = 0; i < 1025; ++i) out.add(Status(Code::not_found, "no such block"));
  };
  auto outcome = world_.run(*client_, channel_.call(kGet, Payload(), into(client_->pool())));
  EXPECT_EQ(outcome.status().code(), Code::too_large);
  EXPECT_EQ(outcome.ran(), Ran::yes);
  get_ = [](Call&, Download& out) {
    for (int i = 0; i < 1024; ++i) out.add(Status(Code::not_found, "no such block"));
  };
  auto full = world_.run(*client_, channel_.call(kGet, Payload(), into(client_->pool())));
  ASSERT_TRUE(full.ok()) << full.to_string();
  EXPECT_EQ(full->parts().size(), 1024u);
  expect_quiet();
}

TEST_F(EdgesTest, TheFirstToHearOfACancelMayDropTheOthers) {
  start();
  int heard = 0;
  echo_ = [&heard](Call& call, std::span<const std::byte>) -> Task<Result<Payload>> {
    (void)co_await when_any(call.on_cancelled(), call.on_cancelled(), call.on_cancelled());
    ++heard;
    co_return Payload();
  };
  EXPECT_EQ(echo(within(10ms)).status().code(), Code::deadline);
  world_.run_for(1s);
  EXPECT_EQ(heard, 1);
  expect_quiet();
}

TEST_F(EdgesTest, AChannelThatDoesNotWaitFindsTheServerAgain) {
  start();
  CallOptions options;
  options.wait_for_connection = false;
  ASSERT_TRUE(echo(options).ok());
  serving_.reset();
  world_.crash("server");
  EXPECT_FALSE(echo(options).ok()) << "it finds out";
  const Outcome<Payload> gone = echo(options);
  EXPECT_EQ(gone.status().code(), Code::unavailable) << gone.to_string();
  EXPECT_EQ(gone.ran(), Ran::no);
  world_.run_for(1s);
  server_ = &world_.add("server");
  serve();
  int failed = 0;
  while (!echo(options).ok()) {
    ASSERT_LT(++failed, 20);
    world_.run_for(500ms);
  }
  expect_quiet();
}

// Its bound is of calls that wait now, not of all that ever did.
TEST_F(EdgesTest, CallsThatGotTheirConnectionWaitForNoneAnyMore) {
  ChannelOptions channel;
  channel.calls_max = 2;
  start({}, {}, channel);
  for (int i = 0; i < 6; ++i) {
    const Outcome<Payload> outcome = echo();  // it waits for a connection
    EXPECT_TRUE(outcome.ok()) << "in round " << i << ": " << outcome.to_string();
    world_.fail_connections("client", "server");
    world_.run_for(1s);
  }
  expect_quiet();
}

// The lease begins with the first piece of a request, and the peer never knows the call: it is
// told all the same, and the memory comes back.
TEST_F(EdgesTest, ALongRequestThatIsDroppedInTheMiddleGivesItsMemoryBack) {
  ChannelOptions channel;
  channel.hold_until_ack = true;
  start({}, {}, channel);
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> { co_return Payload(); };
  ASSERT_TRUE(echo().ok());
  for (int i = 0; i < 20; ++i) {
    const std::string text(900'000, 'x');
    auto call =
        with_deadline(channel_.call(kPut, Payload::of(text), lend(block_of(*client_, 1, 100'000))),
                      Duration(20'000 + i * 10'000));
    (void)world_.run(*client_, std::move(call));
  }
  expect_quiet();
}

TEST_F(EdgesTest, UnconfirmedPullsOfWhatCameInlineAreGood) {
  start();
  put_ = [](Call& call, Upload& in) -> Task<Result<Payload>> {
    (void)co_await ok(in.pull_unconfirmed(call.pool()));
    auto pulled = co_await ok(in.confirm());
    EXPECT_EQ(pulled.size(), 1u);
    EXPECT_TRUE(testing::holds(std::as_const(pulled[0]).bytes(), 3));
    co_return Payload();
  };
  const Outcome<Payload> outcome =
      world_.run(*client_, channel_.call(kPut, Payload(), lend(block_of(*client_, 3, 100))));
  EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  expect_quiet();
}

TEST_F(EdgesTest, OneWayCallsCrossAConnectionAndCostNoAnswer) {
  std::vector<std::uint64_t> noted;
  service_.add(kNote,
               [&noted](Call&, std::span<const std::byte> request, Upload&,
                        Download&) -> Task<Result<Payload>> {
                 noted.push_back(testing::number(request));
                 if (noted.back() == 2) co_return Status(Code::internal, "nobody hears this");
                 co_return Payload::of("nor this");
               });
  start();
  ASSERT_TRUE(echo().ok());
  world_.run_for(1ms);
  const std::uint64_t answers = server_->stats().messages_sent;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const Status sent = world_.run(*client_, channel_.send(kNote, payload(i)));
    EXPECT_TRUE(sent.ok()) << sent.to_string();
    EXPECT_EQ(client_->stats().calls_live, 0u) << "over when it is sent";
  }
  world_.run_for(1ms);
  EXPECT_EQ(noted, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(server_->stats().served_live, 0u);
  EXPECT_EQ(server_->stats().messages_sent, answers) << "not one frame came back";
  expect_quiet();
}

// The device completes none of the READs of a grant that is posted in part.
TEST_F(EdgesTest, AGrantOfManyReadsThatSticksTakesItsEndpointDown) {
  NodeOptions options;
  options.read_timeout = 100ms;
  start({}, options);
  get_ = [this](Call&, Download& out) {
    for (int i = 0; i < 300; ++i) out.add(block_of(*server_, 1, 5000));
  };
  world_.set_faults({});
  Faults faults;
  faults.read_delay = 1;
  faults.read_delay_max = std::chrono::hours(1);
  world_.set_faults(faults);
  auto outcome = world_.run(*client_, channel_.call(kGet, Payload(), into(client_->pool()),
                                                    within(std::chrono::seconds(5))));
  EXPECT_FALSE(outcome.ok());
  EXPECT_GT(client_->stats().read_timeouts, 0u);
  world_.set_faults({});
  expect_quiet();
}

// Who waits for memory without a poller hears of it on whatever thread made room. Found: it heard
// inside the end of the call whose memory that was, and dropped this call.
TEST_F(EdgesTest, WhoWaitsForTheMemoryOfAFailedCallMayDropIt) {
  NodeOptions options;
  options.pool.bytes_max = 128 << 10;
  options.pool.landing_reserve_bytes = 64 << 10;
  options.pool.room_lease_age_min = std::chrono::hours(1);
  start({}, options);
  put_ = [](Call& call, Upload&) -> Task<Result<Payload>> {
    (void)co_await call.on_cancelled();
    co_return Payload();
  };
  struct {
    Started call, waiting;
    Result<Buffer> buffer = Status(Code::internal, "not told");
  } user;
  {
    const Poller::Scope scope(client_->poller());
    user.call = pawl::start(channel_.call(kPut, Payload(), lend(block_of(*client_, 1, 64 << 10))),
                            Callback<Outcome<Payload>>{[](void*, Outcome<Payload> outcome) {
                                                         EXPECT_EQ(outcome.status().code(),
                                                                   Code::connection_lost);
                                                       },
                                                       nullptr});
  }
  ASSERT_TRUE(world_.run_until([&] { return client_->stats().pool.leases_live == 1; }));
  user.waiting = pawl::start(client_->pool().acquire(64 << 10),
                             Callback<Result<Buffer>>{[](void* context, Result<Buffer> buffer) {
                                                        auto* self =
                                                            static_cast<decltype(user)*>(context);
                                                        self->call.drop();
                                                        self->buffer = std::move(buffer);
                                                      },
                                                      &user});
  world_.fail_connections("client", "server");
  ASSERT_TRUE(world_.run_until([&] { return user.buffer.ok(); }));
  user.buffer = Status(Code::internal, "given back");
  expect_quiet();
}

}  // namespace
}  // namespace pawl
