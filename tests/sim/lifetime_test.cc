// SPDX-License-Identifier: Apache-2.0
// case 17: what calls are made of, who awaits them, and the channel and node they go over, each
// gone at the worst moment. The address sanitizer looks on.
#include <string>
#include <vector>

#include "pawl/region.h"
#include "pawl/task_group.h"
#include "pawl/when.h"
#include "sample.pawl.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::Faults;
using testing::fill;
using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kEcho = make_method("test.Lifetime/Echo");
constexpr Method kGet = make_method("test.Lifetime/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Lifetime/Put", BulkDirection::upload);
constexpr Method kNote = make_method("test.Lifetime/Note", BulkDirection::none, false, true);
constexpr std::size_t kBytes = 100'000;

/// The generated service: answers name what came.
class Everything final : public sample::v1::EverythingService {
 public:
  Task<Result<sample::v1::Outer::Reply>> plain(Call& call,
                                               const sample::v1::Outer::Request& request) override {
    sample::v1::Outer::Reply reply;
    reply.set_text(request.text() + std::string(call.metadata("key")));
    co_return reply;
  }
  Task<Result<legacy::Record>> get_http_block2(Call& call,
                                               const sample::v1::Outer::Request& request,
                                               Download& out) override {
    auto buffer = co_await ok(call.pool().acquire(kBytes));
    fill(buffer.bytes(), request.number());
    out.add(std::move(buffer).freeze());
    legacy::Record record;
    record.set_id(static_cast<std::uint32_t>(request.number()));
    co_return record;
  }
  Task<Result<sample::v1::Outer::Reply>> put_block(Call& call, const legacy::Record& request,
                                                   Upload& in) override {
    auto buffer = co_await ok(in.pull(call.pool()));
    sample::v1::Outer::Reply reply;
    reply.set_text(holds(buffer.bytes(), request.id()) ? "right " + request.name() : "wrong");
    co_return reply;
  }
  Task<Status> note(Call&, const sample::v1::Outer::Request& request) override {
    noted_ += request.text();
    co_return Status();
  }
  std::string noted_;
};

class LifetimeTest : public testing::StackFixture {
 protected:
  LifetimeTest() {
    service_.add(kEcho,
                 [](Call& call, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> {
                   std::string text(Payload(request).text());
                   text += call.metadata("key");
                   co_return Payload::of(text);
                 });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte> request, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(number(request, 1)));
                   fill(buffer.bytes(), number(request));
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte> request, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(in.pull(call.pool()));
                   ++(holds(buffer.bytes(), number(request)) ? right_ : wrong_);
                   co_return Payload::of("put");
                 });
    service_.add(kNote,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download&) -> Task<Result<Payload>> {
                   noted_ += Payload(request).text();
                   co_return Payload();
                 });
  }
  void start_all() {
    start();
    Result<Server> second = server_->serve("server:2", everything_);
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    second_.emplace(*std::move(second));
  }

  /// Makes the operation in every form, with all that it was made of gone before anything runs.
  template <class Make, class Look>
  void in_every_form(const Make& make, const Look& look) {
    using T = detail::OperationValueT<decltype(make())>;
    {  // awaited
      const auto awaits = [&]() -> Task<Status> {
        look(co_await make());
        co_return Status();
      };
      EXPECT_TRUE(world_.run(*client_, awaits()).ok());
    }
    {  // started with a callback
      std::optional<T> value;
      Started started;
      {
        const Poller::Scope scope(client_->poller());
        started = pawl::start(
            make(), Callback<T>{[](void* to, T got) {
                                  static_cast<std::optional<T>*>(to)->emplace(std::move(got));
                                },
                                &value});
      }
      ASSERT_TRUE(world_.run_until([&] { return value.has_value(); }));
      look(*std::move(value));
      const Poller::Scope scope(client_->poller());
      started.drop();
    }
    {  // kept, and started later
      auto kept = make();
      world_.run_for(1ms);
      look(world_.run(*client_, std::move(kept)));
    }
    {  // a child of a group, one of many, with a deadline
      const auto joins = [&]() -> Task<Status> {
        TaskGroup group;
        (void)group.spawn(make());
        (void)group.spawn(with_deadline(make(), std::chrono::seconds(5)));
        const Status joined = co_await group.join();
        EXPECT_TRUE(joined.ok()) << joined.to_string();
        auto both = co_await when_all(make(), make());
        look(std::get<0>(std::move(both)));
        look(std::get<1>(std::move(both)));
        co_return Status();
      };
      EXPECT_TRUE(world_.run(*client_, joins()).ok());
    }
  }
  static Payload text(std::string_view name) {
    return Payload::of(std::string(50, 'x') + std::string(name));
  }
  static sample::v1::Outer::Request request(std::string_view name, std::uint64_t value = 0) {
    sample::v1::Outer::Request made;
    made.set_text(std::string(50, 'x') + std::string(name));
    made.set_number(value);
    return made;
  }
  static legacy::Record record(std::uint32_t id) {
    legacy::Record made;
    made.set_id(id);
    made.set_name(std::string(50, 'x'));
    return made;
  }
  sample::v1::EverythingClient stub() {
    return sample::v1::EverythingClient(client_->channel("server:2"));
  }
  Buffer room(std::size_t bytes = kBytes) { return *client_->pool().try_acquire(bytes); }

  Everything everything_;
  std::optional<Server> second_;
  std::string noted_;
  int right_ = 0, wrong_ = 0;
};

/// Options with metadata, whose memory is gone with it.
struct Labelled {
  std::string value = std::string(50, 'm').append("end");
  std::vector<Metadata> metadata = {{"key", value}};
  CallOptions options() {
    CallOptions options;
    options.metadata = metadata;
    return options;
  }
};

TEST_F(LifetimeTest, CallsTakeTemporaries) {
  start_all();
  const std::string label = std::string(50, 'm').append("end");
  in_every_form(
      [&] { return client_->channel("server:1").call(kEcho, text("a"), Labelled().options()); },
      [&](const Outcome<Payload>& got) {
        ASSERT_TRUE(got.ok()) << got.to_string();
        EXPECT_EQ(got->text(), std::string(50, 'x').append("a").append(label));
      });
  in_every_form(
      [&] {
        return client_->channel("server:1")
            .call(kPut, payload(3), lend(block_of(*client_, 3, kBytes)), Labelled().options());
      },
      [](const Outcome<Payload>& got) { EXPECT_TRUE(got.ok()) << got.to_string(); });
  in_every_form(
      [&] {
        return client_->channel("server:1")
            .call(kPut, payload(3), lend(block_of(*client_, 3, 2 * kBytes).slice(0, kBytes)));
      },
      [](const Outcome<Payload>& got) { EXPECT_TRUE(got.ok()) << got.to_string(); });
  in_every_form(
      [&] {
        return client_->channel("server:1")
            .call(kPut, payload(3), lend(std::vector<Block>{block_of(*client_, 3, kBytes)}));
      },
      [](const Outcome<Payload>& got) { EXPECT_TRUE(got.ok()) << got.to_string(); });
  // Over a channel that stays: one-way calls are over when they were sent, and the last call takes
  // the connection with it, with what is on its way.
  in_every_form([&] { return channel_.send(kNote, text("n")); },
                [](const Status& sent) { EXPECT_TRUE(sent.ok()) << sent.to_string(); });
  world_.run_for(1ms);
  EXPECT_EQ(noted_.size(), 7 * text("n").size());
  EXPECT_EQ(right_, 3 * 7);
  EXPECT_EQ(wrong_, 0);
  expect_quiet();
}

TEST_F(LifetimeTest, DownloadsTakeTemporaries) {
  start_all();
  const auto right = [](const Outcome<Pulled<Payload>>& got) {
    ASSERT_TRUE(got.ok()) << got.to_string();
    ASSERT_TRUE(got->part().ok());
    EXPECT_TRUE(holds(got->part()->bytes(), 5));
  };
  const auto get = [&](Into into) {
    return client_->channel("server:1")
        .call(kGet, payload(5, kBytes), std::move(into), Labelled().options());
  };
  in_every_form([&] { return get(into(client_->pool())); }, right);
  in_every_form([&] { return get(into(client_->pool()).range(ByteRange{0, 50'000})); }, right);
  in_every_form([&] { return get(into(room())); }, right);
  in_every_form(
      [&] {
        std::vector<Buffer> rooms;
        rooms.push_back(room());
        return get(into(std::move(rooms)));
      },
      right);
  std::size_t at = 0;
  in_every_form(
      [&] {  // a region of its own each time, held by the call alone
        auto memory = std::make_shared<std::vector<std::byte>>(2 * 131072);
        Region region = *Region::create(client_->pool(), *memory, memory);
        return get(into(region, ByteRange{131072 * (at++ % 2), kBytes}));
      },
      right);
  in_every_form(
      [&] {
        std::vector<Block> blocks;
        blocks.push_back(block_of(*server_, 5, kBytes));
        return client_->pull(*server_->issue_ticket(std::move(blocks), "server:1", 5s),
                             into(client_->pool()), Labelled().options());
      },
      right);
  world_.run_for(std::chrono::seconds(10));  // the tickets' deadlines
  expect_quiet();
}

TEST_F(LifetimeTest, GeneratedCallsTakeTemporaries) {
  start_all();
  in_every_form([&] { return stub().plain(request("p"), Labelled().options()); },
                [](const Outcome<sample::v1::Outer::Reply>& got) {
                  ASSERT_TRUE(got.ok()) << got.to_string();
                  EXPECT_EQ(got->text(), request("p").text() + Labelled().value);
                });
  in_every_form([&] { return stub().get_http_block2(request("g", 9), into(client_->pool())); },
                [](const Outcome<Pulled<legacy::Record>>& got) {
                  ASSERT_TRUE(got.ok()) << got.to_string();
                  EXPECT_EQ(got->reply().id(), 9u);
                  EXPECT_TRUE(holds(got->part()->bytes(), 9));
                });
  in_every_form([&] { return stub().put_block(record(4), lend(block_of(*client_, 4, kBytes))); },
                [](const Outcome<sample::v1::Outer::Reply>& got) {
                  ASSERT_TRUE(got.ok()) << got.to_string();
                  EXPECT_EQ(got->text(), "right " + record(4).name());
                });
  const sample::v1::EverythingClient stays = stub();
  in_every_form([&] { return sample::v1::EverythingClient(stays).note(request("n")); },
                [](const Status& sent) { EXPECT_TRUE(sent.ok()) << sent.to_string(); });
  world_.run_for(1ms);
  EXPECT_EQ(everything_.noted_.size(), 7 * request("n").text().size());
  expect_quiet();
}

// --- who goes while calls are under way ------------------------------------------------------

// The first completion, the second, ... drops the last Channel, itself and all others.
TEST_F(LifetimeTest, TheChannelAndAllCallsGoInsideACompletion) {
  constexpr std::size_t kCalls = 9;
  start();
  for (std::size_t fatal = 1; fatal <= kCalls; ++fatal) {
    struct Load {
      Channel channel;
      std::vector<Started> calls;
      std::size_t over = 0, fatal = 0;
      void ended() {
        if (++over != fatal) return;
        channel = Channel();
        calls.clear();
      }
    } load;
    load.channel = client_->channel("server:1");
    load.fatal = fatal;
    const Callback<Outcome<Payload>> plain{[](void* context, Outcome<Payload> got) {
                                             EXPECT_TRUE(got.ok()) << got.to_string();
                                             static_cast<Load*>(context)->ended();
                                           },
                                           &load};
    const Callback<Outcome<Pulled<Payload>>> pulled{
        [](void* context, Outcome<Pulled<Payload>> got) {
          EXPECT_TRUE(got.ok() && holds(got->part()->bytes(), 5)) << got.to_string();
          static_cast<Load*>(context)->ended();
        },
        &load};
    {
      const Poller::Scope scope(client_->poller());
      for (std::size_t i = 0; i < kCalls / 3; ++i) {
        load.calls.push_back(pawl::start(load.channel.call(kEcho, text("e")), plain));
        load.calls.push_back(pawl::start(
            load.channel.call(kPut, payload(3), lend(block_of(*client_, 3, kBytes))), plain));
        load.calls.push_back(pawl::start(
            load.channel.call(kGet, payload(5, kBytes), into(client_->pool())), pulled));
      }
    }
    ASSERT_TRUE(world_.run_until([&] { return load.over >= fatal; }));
    expect_quiet();
    EXPECT_EQ(load.over, fatal) << "nobody is told after he was dropped";
    EXPECT_EQ(client_->stats().connections_live, 0u);
    EXPECT_EQ(server_->stats().connections_live, 0u);
  }
  EXPECT_EQ(wrong_, 0);
}

/// Downloads, uploads what it got, and says how far it came.
Task<Status> run_through(Node& node, Channel channel, int& steps) {
  ++steps;
  auto got = co_await ok(channel.call(kGet, payload(7, kBytes), into(node.pool())));
  auto block = co_await ok(got.part());
  EXPECT_TRUE(holds(block.bytes(), 7));
  ++steps;
  auto both = co_await when_all(channel.call(kPut, payload(7), lend(block)),
                                channel.call(kEcho, Payload::of("both")));
  if (!std::get<0>(both).ok()) co_return std::get<0>(both).status();
  if (!std::get<1>(both).ok()) co_return std::get<1>(both).status();
  ++steps;
  co_return Status();
}

TEST_F(LifetimeTest, ACoroutineMayGoAtEveryMomentOfItsCalls) {
  start();
  for (const bool late : {false, true}) {
    Faults faults;
    faults.read_delay = late ? 0.5 : 0;
    faults.read_delay_max = 50us;
    world_.set_faults(faults);
    int whole = 0;
    bool seen[4] = {};
    for (Duration moment = 0us; whole < 3 && moment < 2ms; moment += 1us) {
      int steps = 0;
      std::optional<Status> status;
      Started started;
      {
        const Poller::Scope scope(client_->poller());
        started = pawl::start(
            detail::to_operation(run_through(*client_, client_->channel("server:1"), steps)),
            Callback<Status>{[](void* to, Status got) {
                               static_cast<std::optional<Status>*>(to)->emplace(std::move(got));
                             },
                             &status});
      }
      world_.run_for(moment);
      seen[steps] = true;
      {
        const Poller::Scope scope(client_->poller());
        started.drop();
      }
      const bool told = status.has_value();
      EXPECT_TRUE(!told || status->ok()) << status->to_string();
      whole += told ? 1 : 0;
      world_.run_for(10ms);
      EXPECT_EQ(status.has_value(), told);
      EXPECT_EQ(client_->stats().transfers_live, 0u);
      EXPECT_EQ(client_->stats().pool.bytes_in_use, 0u);
    }
    EXPECT_EQ(whole, 3);
    EXPECT_TRUE(seen[1] && seen[2] && seen[3]) << "dropped in each part";
  }
  EXPECT_EQ(wrong_, 0);
  expect_quiet();
}

// It is resumed with the loss, and ends by itself.
TEST_F(LifetimeTest, ANodeMayGoAtEveryMomentOfACoroutine) {
  start();
  int whole = 0, lost = 0;
  for (Duration moment = 0us; whole < 2 && moment < 2ms; moment += 2us) {
    Node& node = world_.add("other");
    int steps = 0;
    std::optional<Status> status;
    Started started;
    {
      const Poller::Scope scope(node.poller());
      started = pawl::start(
          detail::to_operation(run_through(node, node.channel("server:1"), steps)),
          Callback<Status>{[](void* to, Status got) {
                             static_cast<std::optional<Status>*>(to)->emplace(std::move(got));
                           },
                           &status});
    }
    world_.run_for(moment);
    world_.crash("other");
    ASSERT_TRUE(status.has_value()) << "at " << moment.count();
    ++(status->ok() ? whole : lost);
    EXPECT_TRUE(status->ok() || status->code() == Code::connection_lost) << status->to_string();
  }
  EXPECT_EQ(whole, 2);
  EXPECT_GT(lost, 5);
  EXPECT_EQ(wrong_, 0);
  world_.run_for(std::chrono::seconds(30));  // the server is not told, and finds out
  expect_quiet();
}

TEST_F(LifetimeTest, ANodeIsNotDestroyedByItsOwnCallback) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child may not use its parent's nodes
  start();
  EXPECT_DEATH(
      {
        Started started;
        {
          const Poller::Scope scope(client_->poller());
          started = pawl::start(
              channel_.call(kEcho, text("a")),
              Callback<Outcome<Payload>>{[](void* world, Outcome<Payload>) {
                                           static_cast<testing::World*>(world)->crash("client");
                                         },
                                         &world_});
        }
        world_.run_for(1s);
      },
      "a poller is turned inside its own turn");
}

}  // namespace
}  // namespace pawl
