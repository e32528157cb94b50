// SPDX-License-Identifier: Apache-2.0
// The last Channel goes while its calls are under way, inside their callbacks, or long after its
// connection: calls go on to their own ends, and the connection ends with the last of them. Case
// 106.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "pawl/deadline.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kEcho = make_method("test.Drop/Echo");
constexpr Method kGet = make_method("test.Drop/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Drop/Put", BulkDirection::upload);
constexpr Method kBack = make_method("test.Drop/Back");
constexpr Method kNote = make_method("test.Drop/Note", BulkDirection::none, false, true);
constexpr Method kMeet = make_method("test.Drop/Meet");
constexpr Method kUnknown = make_method("test.Drop/Unknown");
constexpr std::size_t kBytes = 100'000;
constexpr Duration kHandlerTime = 10ms;

class ChannelDrop : public testing::StackFixture {
 protected:
  using Ended = Callback<Outcome<Payload>>;

  ChannelDrop() {
    service_.add(
        kEcho,
        [](Call&, std::span<const std::byte> request, Upload&, Download&) -> Task<Result<Payload>> {
          co_await sleep_for(kHandlerTime);
          co_return Payload(request);
        });
    service_.add(kGet,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   const std::uint64_t tag = number(request);
                   co_await sleep_for(kHandlerTime);
                   out.add(block_of(*server_, tag, kBytes));
                   co_return Payload();
                 });
    service_.add(kPut,
                 [](Call& call, std::span<const std::byte> request, Upload& in,
                    Download&) -> Task<Result<Payload>> {
                   const std::uint64_t tag = number(request);
                   co_await sleep_for(kHandlerTime);
                   auto pulled = co_await ok(in.pull(call.pool()));
                   co_return payload(holds(std::as_const(pulled).bytes(), tag) ? tag : 0);
                 });
  }
  template <class T>
  Started begin(Operation<T> call, Callback<T> callback) {
    const Poller::Scope scope(client_->poller());
    return pawl::start(std::move(call), callback);
  }
  void drop_channel() {
    const Poller::Scope scope(client_->poller());
    channel_ = Channel();
  }
  Outcome<Payload> echo() { return world_.run(*client_, channel_.call(kEcho, payload(1))); }
  void expect_no_connection() {
    expect_quiet();
    EXPECT_EQ(client_->stats().connections_live, 0u) << "it ends with the channel's last call";
    EXPECT_EQ(server_->stats().connections_live, 0u);
  }
};

TEST_F(ChannelDrop, AHundredCallsWithBulkBothWaysEndWellWithoutTheirChannel) {
  start();
  struct {
    std::uint64_t echoes = 0, uploads = 0, downloads = 0;
  } good;
  std::vector<Started> calls;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    if (i % 3 == 0) {
      calls.push_back(begin(channel_.call(kEcho, payload(i)),
                            Ended{[](void* count, Outcome<Payload> outcome) {
                                    EXPECT_TRUE(outcome.ok()) << outcome.to_string();
                                    ++*static_cast<std::uint64_t*>(count);
                                  },
                                  &good.echoes}));
    } else if (i % 3 == 1) {
      calls.push_back(begin(channel_.call(kPut, payload(i), lend(block_of(*client_, i, kBytes))),
                            Ended{[](void* count, Outcome<Payload> outcome) {
                                    ASSERT_TRUE(outcome.ok()) << outcome.to_string();
                                    *static_cast<std::uint64_t*>(count) +=
                                        number(outcome->bytes()) != 0;
                                  },
                                  &good.uploads}));
    } else {
      // What the handler fills depends on the tag alone, so the content needs one only.
      calls.push_back(begin(
          channel_.call(kGet, payload(7), into(client_->pool())),
          Callback<Outcome<Pulled<Payload>>>{[](void* count, Outcome<Pulled<Payload>> outcome) {
                                               ASSERT_TRUE(outcome.ok()) << outcome.to_string();
                                               *static_cast<std::uint64_t*>(count) +=
                                                   holds(outcome->part()->bytes(), 7);
                                             },
                                             &good.downloads}));
    }
  }
  ASSERT_TRUE(world_.run_until([&] { return server_->stats().served_live == 100; }));
  drop_channel();
  world_.run_for(kHandlerTime / 2);
  EXPECT_EQ(client_->stats().calls_live, 100u);
  EXPECT_EQ(client_->stats().connections_live, 1u) << "the calls keep it";
  ASSERT_TRUE(world_.run_until([&] { return client_->stats().calls_live == 0; }));
  EXPECT_EQ(good.echoes, 33u);
  EXPECT_EQ(good.uploads, 34u);
  EXPECT_EQ(good.downloads, 33u);
  EXPECT_EQ(client_->stats().connections_opened, 1u);
  calls.clear();
  expect_no_connection();
}

// The connection is still being made, or not even that: between two attempts at a server that is
// not there.
TEST_F(ChannelDrop, CallsThatWaitForAConnectionStillGetIt) {
  for (const bool server_is_there : {true, false}) {
    if (server_is_there) {
      start();
    } else {
      serving_.reset();
      world_.crash("server");
      channel_ = client_->channel("server:1");
    }
    std::array<std::uint64_t, 2> ended{};
    std::vector<Started> calls;
    for (int i = 0; i < 10; ++i) {
      calls.push_back(begin(channel_.call(kEcho, payload(1)),
                            Ended{[](void* to, Outcome<Payload> outcome) {
                                    auto& counts = *static_cast<std::array<std::uint64_t, 2>*>(to);
                                    ++counts[outcome.ok() ? 1 : 0];
                                  },
                                  &ended}));
    }
    if (!server_is_there) world_.run_for(3s);
    EXPECT_EQ(client_->stats().connections_live, 0u);
    drop_channel();
    if (!server_is_there) {
      world_.run_for(3s);
      server_ = &world_.add("server");
      serve();
    }
    ASSERT_TRUE(world_.run_until([&] { return client_->stats().calls_live == 0; }));
    EXPECT_EQ(ended, (std::array<std::uint64_t, 2>{0, 10}));
    calls.clear();
    expect_no_connection();
  }
}

TEST_F(ChannelDrop, AfterItsConnectionAndItsCallsNothingGoesOnInTheBackground) {
  start();
  ASSERT_TRUE(echo().ok());
  serving_.reset();
  world_.crash("server");
  CallOptions impatient;
  impatient.wait_for_connection = false;
  while (client_->stats().connections_live != 0) world_.run_for(1ms);
  EXPECT_FALSE(world_.run(*client_, channel_.call(kEcho, Payload(), impatient)).ok());
  world_.run_for(5ms);  // it is about to try again, for nobody
  drop_channel();
  world_.run_for(1ms);
  const std::uint64_t tried = client_->stats().connects_failed;
  server_ = &world_.add("server");
  serve();
  world_.run_for(10s);
  EXPECT_EQ(client_->stats().connects_failed, tried);
  EXPECT_EQ(server_->stats().connections_opened, 0u) << "a channel that is gone connects";
  expect_no_connection();
}

/// One call of many, all of the same channel; what its end does to the channel and the others is
/// the test's.
struct Group {
  Channel channel;
  std::vector<Started> calls;
  std::size_t first = 0;  ///< whose callback drops
  bool drops_calls = false;
  std::vector<Code> ends;

  static void ended(void* context, Outcome<Payload> outcome) {
    auto* self = static_cast<Group*>(context);
    self->ends.push_back(outcome.status().code());
    if (self->ends.size() - 1 != self->first) return;
    self->channel = Channel();
    if (self->drops_calls) self->calls.clear();  // this one is among them
  }
};

struct Ending {
  const char* name;
  Code code;
};
constexpr std::array kEndings = {
    Ending{"answer", Code::ok},
    Ending{"refused by the peer", Code::unimplemented},
    Ending{"deadline", Code::deadline},
    Ending{"connection lost", Code::connection_lost},
    Ending{"no connection", Code::unavailable},
    Ending{"refused here", Code::failed_precondition},
};

// Every way a call can end, the first or the last of ten, alone or with all the others.
TEST_F(ChannelDrop, InsideACallbackOfItsOwn) {
  start();
  for (const Ending& ending : kEndings) {
    for (const std::size_t first : {0u, 9u}) {
      for (const bool drops_calls : {false, true}) {
        SCOPED_TRACE(std::string(ending.name) + ", call " + std::to_string(first) +
                     (drops_calls ? ", drops all" : ""));
        const std::string target = ending.code == Code::unavailable ? "nobody:1" : "server:1";
        Group group{client_->channel(target), {}, first, drops_calls, {}};
        // With a connection, so that deadlines count the handler's time only.
        if (ending.code != Code::unavailable) {
          ASSERT_TRUE(world_.run(*client_, group.channel.connect()).ok());
        }
        CallOptions options;
        if (ending.code == Code::deadline) options.deadline = kHandlerTime / 2;
        options.wait_for_connection = ending.code != Code::unavailable;
        const Block foreign = block_of(*server_, 1, 8);
        const Channel& channel = group.channel;
        for (int i = 0; i < 10; ++i) {
          if (!channel) break;  // calls that are refused here end inside their start
          auto call = ending.code == Code::failed_precondition
                          ? channel.call(kPut, Payload(), lend(foreign))
                          : channel.call(ending.code == Code::unimplemented ? kUnknown : kEcho,
                                         payload(1), options);
          Started started = begin(std::move(call), Ended{&Group::ended, &group});
          if (channel || !drops_calls) group.calls.push_back(std::move(started));
        }
        world_.run_for(kHandlerTime / 4);
        if (ending.code == Code::connection_lost) world_.fail_connections("client", "server");
        world_.run_for(1s);
        const bool here = ending.code == Code::failed_precondition;
        const std::size_t expected = drops_calls || here ? first + 1 : 10;
        EXPECT_EQ(group.ends, std::vector<Code>(expected, ending.code));
        EXPECT_EQ(client_->stats().connections_live, 0u);
        EXPECT_EQ(server_->stats().connections_live, 0u);
      }
    }
  }
  drop_channel();
  expect_no_connection();
}

// Dropping the call itself is an end too, and so is that of whoever shares its callback.
TEST_F(ChannelDrop, WithItsLastCallThatIsDropped) {
  start();
  for (const bool channel_first : {false, true}) {
    Channel channel = client_->channel("server:1");
    ASSERT_TRUE(world_.run(*client_, channel.connect()).ok());
    const Block lent = block_of(*client_, 1, kBytes);
    Started call = begin(channel.call(kPut, payload(1), lend(lent)),
                         Ended{[](void*, Outcome<Payload>) { ADD_FAILURE() << "was told"; }});
    world_.run_for(kHandlerTime / 2);
    ASSERT_EQ(server_->stats().served_live, 1u);
    {
      const Poller::Scope scope(client_->poller());
      if (channel_first) channel = Channel();
      call.drop();
      channel = Channel();
    }
    world_.run_for(1s);
    EXPECT_EQ(server_->stats().served_live, 0u) << "the peer heard of it";
    EXPECT_EQ(client_->stats().connections_live, 0u);
  }
  drop_channel();
  expect_no_connection();
}

// A handler's way back to its caller is a Channel too: its last copy goes inside the callback of a
// call over it, with others under way.
TEST_F(ChannelDrop, OfAReverseChannelInsideACallback) {
  testing::FunctionService callbacks;
  callbacks.add(kBack,
                [](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
                  co_await sleep_for(kHandlerTime);
                  co_return Payload();
                });
  Group group;
  service_.add(kMeet,
               [&group](Call& call, std::span<const std::byte>, Upload&,
                        Download&) -> Task<Result<Payload>> {
                 group.channel = call.caller();
                 for (int i = 0; i < 10; ++i) {
                   group.calls.push_back(pawl::start(group.channel.call(kBack, Payload()),
                                                     Ended{&Group::ended, &group}));
                 }
                 co_return Payload();
               });
  start();
  channel_ = client_->channel("server:1", {}, callbacks);
  const Outcome<Payload> met = world_.run(*client_, channel_.call(kMeet, Payload()));
  ASSERT_TRUE(met.ok()) << met.to_string();
  world_.run_for(1s);
  EXPECT_EQ(group.ends, std::vector<Code>(10, Code::ok));
  EXPECT_EQ(client_->stats().connections_live, 1u) << "it is the client's, who keeps its channel";
  drop_channel();
  expect_no_connection();
  group.calls.clear();
}

// A message that was handed over is not lost with its channel.
TEST_F(ChannelDrop, RightAfterAOneWayCall) {
  std::vector<std::uint64_t> noted;
  service_.add(kNote,
               [&noted](Call&, std::span<const std::byte> request, Upload&,
                        Download&) -> Task<Result<Payload>> {
                 noted.push_back(number(request));
                 co_return Payload();
               });
  start();
  const auto all = [](Channel channel) -> Task<Status> {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      const Status sent = co_await channel.send(kNote, payload(i));
      if (!sent.ok()) co_return sent;
    }
    co_return Status();
  };
  const Status sent = world_.run(*client_, all(std::exchange(channel_, Channel())));
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  expect_no_connection();
  EXPECT_EQ(noted.size(), 20u);
}

}  // namespace
}  // namespace pawl
