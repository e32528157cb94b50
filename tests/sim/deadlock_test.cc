// SPDX-License-Identifier: Apache-2.0
// case 57: nodes that begin something large with each other at the same moment, with a window of
// one READ and memory for one landing, or with two receives. Nobody waits for who waits for him: no
// timer is needed, so all is over long before the first of them would fire.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/sim/fabric.h"
#include "fabric/sim/loop.h"
#include "fabric/sim/network.h"
#include "rpc/fabric_source.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::fill;
using testing::FunctionService;
using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kPut = make_method("test.Deadlock/Put", BulkDirection::upload);
constexpr Method kGet = make_method("test.Deadlock/Get", BulkDirection::download);
constexpr Method kEcho = make_method("test.Deadlock/Echo");
constexpr Method kTurn = make_method("test.Deadlock/Turn");
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBytes = 16 * kMiB;
/// Below each timer that could end a wait: those of READs, leases, quarantine and connections.
constexpr Duration kNoTimer = 200ms;

class OneReadAtATime final : public detail::FabricSource {
 public:
  OneReadAtATime(fabric::SimNetwork& network, std::string name)
      : network_(network), name_(std::move(name)) {}
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    return std::unique_ptr<fabric::Fabric>(std::make_unique<fabric::SimFabric>(network_, name_));
  }
  [[nodiscard]] const char* name() const override { return "sim"; }
  [[nodiscard]] const char* reason() const override { return "a window of one READ"; }

 private:
  fabric::SimNetwork& network_;
  const std::string name_;
};

class DeadlockTest : public ::testing::Test {
 protected:
  /// One of `count` nodes, each of which has a channel to the next.
  struct Place {
    DeadlockTest& test;
    std::unique_ptr<OneReadAtATime> source;
    FunctionService service;
    std::unique_ptr<Node> node;
    Server server;
    Channel next;
    Channel back;  ///< to whoever called kTurn
    int right = 0, wrong = 0;
  };

  DeadlockTest() : network_(57, options()), loop_(network_) {}
  ~DeadlockTest() override {
    calls_.clear();
    for (Place& place : places_) place.next = place.back = Channel();
    places_.clear();
  }

  static fabric::SimOptions options() {
    fabric::SimOptions options;
    options.capabilities.read_depth_max = 1;
    return options;
  }
  void start(std::size_t count, NodeOptions options) {
    for (std::size_t i = 0; i < count; ++i) {
      Place& place = places_.emplace_back(*this);
      const std::string name(1, static_cast<char>('a' + i));
      place.source = std::make_unique<OneReadAtATime>(network_, name);
      options.name = name;
      options.clock = &network_.clock();
      options.fabric_source = place.source.get();
      options.pool.grow_inline = true;
      options.seed = 57 + i;
      place.node = std::make_unique<Node>(options);
      add_methods(place);
      Result<Server> server = place.node->serve(name + ":1", place.service);
      ASSERT_TRUE(server.ok()) << server.status().to_string();
      place.server = *std::move(server);
      loop_.add([node = place.node.get()] { return node->run_once(); },
                [node = place.node.get()] { return node->next_timer(); });
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::string next(1, static_cast<char>('a' + (i + 1) % count));
      places_[i].next = places_[i].node->channel(next + ":1", {}, places_[i].service);
      // Connected, and the data endpoints up: from here on it is the load alone.
      begin(places_[i], places_[i].next.call(kTurn, Payload()));
      ASSERT_TRUE(put(places_[i], places_[i].next, 5000));
      get(places_[i], places_[i].next, 5000);
      expect_all_end();
    }
    for (Place& place : places_) place.right = 0;
  }
  static void add_methods(Place& place) {
    place.service.add(
        kPut,
        [&place](Call& call, std::span<const std::byte> request, Upload& in,
                 Download&) -> Task<Result<Payload>> {
          const std::uint64_t tag = number(request);
          const std::uint64_t hops = number(request, 1);
          auto buffer = co_await ok(in.pull(call.pool()));
          ++(holds(buffer.bytes(), tag) ? place.right : place.wrong);
          if (hops == 0) co_return Payload();
          co_await ok(place.next.call(kPut, payload(tag, hops - 1),
                                      lend(std::move(buffer).freeze()), call.inherit()));
          co_return Payload();
        });
    place.service.add(kGet,
                      [](Call& call, std::span<const std::byte> request, Upload&,
                         Download& out) -> Task<Result<Payload>> {
                        auto buffer = co_await ok(call.pool().acquire(number(request, 1)));
                        fill(buffer.bytes(), number(request));
                        out.add(std::move(buffer).freeze());
                        co_return Payload();
                      });
    place.service.add(kEcho,
                      [](Call&, std::span<const std::byte> request, Upload&,
                         Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    place.service.add(kTurn,
                      [&place](Call& call, std::span<const std::byte>, Upload&,
                               Download&) -> Task<Result<Payload>> {
                        place.back = call.caller();
                        co_return Payload();
                      });
  }

  // --- calls that are begun at the same moment ----------------------------------------------

  struct Begun {
    DeadlockTest& test;
    Place& place;
    std::uint64_t tag = 0;
    Started started;
    bool over = false;
  };
  template <class T>
  void begin(Place& place, Operation<Outcome<T>> call, std::uint64_t tag = 0) {
    Begun& begun = calls_.emplace_back(*this, place, tag, Started());
    const Poller::Scope scope(place.node->poller());
    begun.started =
        pawl::start(std::move(call), Callback<Outcome<T>>{[](void* context, Outcome<T> outcome) {
                                                            over(*static_cast<Begun*>(context),
                                                                 std::move(outcome));
                                                          },
                                                          &begun});
  }
  template <class T>
  static void over(Begun& begun, Outcome<T> outcome) {
    begun.over = true;
    EXPECT_TRUE(outcome.ok()) << outcome.to_string();
    if constexpr (std::is_same_v<T, Pulled<Payload>>) {
      if (!outcome.ok()) return;
      ++(holds(outcome->parts()[0]->bytes(), begun.tag) ? begun.place.right : begun.place.wrong);
    } else {
      if (outcome.ok() && outcome->size() > 0) ++begun.place.right;
    }
  }
  /// False: there is no more memory that may be lent.
  bool put(Place& from, const Channel& to, std::size_t bytes, std::uint64_t hops = 0) {
    Result<Buffer> buffer = from.node->pool().try_acquire(bytes);
    if (!buffer.ok()) return false;
    const std::uint64_t tag = ++tags_;
    fill(buffer->bytes(), tag);
    begin(from, to.call(kPut, payload(tag, hops), lend((*std::move(buffer)).freeze())));
    return true;
  }
  void get(Place& from, const Channel& to, std::size_t bytes) {
    const std::uint64_t tag = ++tags_;
    begin(from, to.call(kGet, payload(tag, bytes), into(from.node->pool())), tag);
  }
  void expect_all_end() {
    const auto all_over = [&] {
      for (const Place& place : places_) {
        const NodeStats stats = place.node->stats();
        reads_most_ = std::max(reads_most_, stats.reads_posted - stats.reads_completed);
      }
      return std::all_of(calls_.begin(), calls_.end(), [](const Begun& c) { return c.over; });
    };
    EXPECT_TRUE(loop_.run_until(all_over, kNoTimer)) << "they wait for each other";
    for (const Place& place : places_) EXPECT_EQ(place.wrong, 0);
    for (Begun& begun : calls_) {
      const Poller::Scope scope(begun.place.node->poller());
      begun.started.drop();
    }
    calls_.clear();
  }

  fabric::SimNetwork network_;
  fabric::SimLoop loop_;
  std::deque<Place> places_;
  std::deque<Begun> calls_;
  std::uint64_t tags_ = 0;
  std::uint64_t reads_most_ = 0;
};

/// Room for three that are lent, and one that lands. Nothing is taken back to make room.
NodeOptions tight() {
  NodeOptions options;
  options.pool.bytes_max = 5 * kBytes - kMiB;  // message slots take a part of the fifth
  options.pool.landing_reserve_bytes = kBytes;
  options.pool.slab_bytes = kBytes;
  options.pool.room_lease_age_min = std::chrono::hours(1);
  return options;
}

TEST_F(DeadlockTest, TwoThatSendToEachOther) {
  start(2, tight());
  for (Place& place : places_) {
    while (put(place, place.next, kBytes)) {
    }
  }
  expect_all_end();
  for (const Place& place : places_) EXPECT_EQ(place.right, 3);
  EXPECT_EQ(reads_most_, 1u) << "a window of one READ";
}

TEST_F(DeadlockTest, TwoThatSendToEachOtherOverOneConnection) {
  start(2, tight());
  while (put(places_[0], places_[0].next, kBytes) && put(places_[1], places_[1].back, kBytes)) {
  }
  expect_all_end();
  for (const Place& place : places_) EXPECT_EQ(place.right, 3);
  EXPECT_EQ(reads_most_, 1u);
}

TEST_F(DeadlockTest, TwoThatFetchFromEachOtherAndSend) {
  start(2, tight());
  for (Place& place : places_) {
    ASSERT_TRUE(put(place, place.next, kBytes));
    for (int i = 0; i < 3; ++i) get(place, place.next, kBytes);
  }
  expect_all_end();
  for (const Place& place : places_) EXPECT_EQ(place.right, 4);
}

// Each sends its own to the next, which sends it on before it answers, until it is back.
TEST_F(DeadlockTest, ThreeInARing) {
  start(3, tight());
  for (Place& place : places_) ASSERT_TRUE(put(place, place.next, kBytes, 2));
  expect_all_end();
  for (const Place& place : places_) EXPECT_EQ(place.right, 3);
  EXPECT_EQ(reads_most_, 1u);
}

// Long messages in both directions, whose parts wait for credit of the other side.
TEST_F(DeadlockTest, LongMessagesBothWaysThroughTwoReceives) {
  NodeOptions options;
  options.receive_messages = 2;
  start(2, options);
  const std::string text(1'000'000, 'x');
  for (int i = 0; i < 8; ++i) {
    for (Place& place : places_) {
      begin(place, place.next.call(kEcho, Payload::of(text)));
      begin(place, place.back.call(kEcho, Payload::of(text)));
    }
  }
  expect_all_end();
  for (const Place& place : places_) {
    EXPECT_EQ(place.right, 16);
    EXPECT_GT(place.node->stats().credit_stalls, 0u);
  }
}

}  // namespace
}  // namespace pawl
