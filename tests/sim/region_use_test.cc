// SPDX-License-Identifier: Apache-2.0
// Blocks of a region whose bytes were reused before the call that carries them went out: the bytes
// of another use never travel under the name of the old one, inline or lent, in either direction.
#include <string>

#include "sim/stack_fixture.h"
#include "support/interrupted_memory.h"

namespace pawl {
namespace {

using testing::fill;
using testing::holds;
using testing::InterruptedMemory;

constexpr Method kGet = make_method("test.RegionUse/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.RegionUse/Put", BulkDirection::upload);
constexpr std::size_t kBlock = 2048;  // one is inline, four are lent
constexpr std::size_t kBlocks = 16;

/// One of a node's, each block filled with its own number.
struct Cache {
  explicit Cache(Node& node, MemoryKind* kind = nullptr)
      : region(std::move(
            *Region::create(node.pool(), memory, nullptr, {.block_bytes = kBlock, .kind = kind}))) {
    for (std::size_t i = 0; i < kBlocks; ++i) fill(*region.reuse(i), i);
  }
  void write(std::size_t i, std::uint64_t tag) const {
    Result<std::span<std::byte>> span = region.reuse(i);
    ASSERT_TRUE(span.ok()) << span.status().to_string();
    fill(*span, tag);
  }
  [[nodiscard]] Block block(std::size_t first, std::size_t count = 1) const {
    return *region.block(first, count);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(kBlock * kBlocks);
  Region region;
};

class RegionUse : public testing::StackFixture {
 protected:
  RegionUse() {
    service_.add(
        kGet,
        [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
          get_(out);
          co_return Payload::of("got");
        });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte>, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   ++puts_;
                   uploaded_ = (co_await ok(in.pull(call.pool()))).freeze();
                   co_return Payload();
                 });
    start();
  }
  Outcome<Pulled<Payload>> get() {
    return world_.run(*client_, channel_.call(kGet, Payload(), into(client_->pool())));
  }
  Outcome<Payload> put(Lend lend) {
    return world_.run(*client_, channel_.call(kPut, Payload(), std::move(lend)));
  }
  void expect_unsent_and_stale(const Outcome<Payload>& outcome) {
    EXPECT_EQ(outcome.status().code(), Code::stale) << outcome.to_string();
    EXPECT_EQ(outcome.ran(), Ran::no);
    EXPECT_NE(outcome.status().what().find("Region::block"), std::string_view::npos);
    world_.run_for(std::chrono::milliseconds(10));
    EXPECT_EQ(puts_, 0);
    EXPECT_EQ(server_->stats().served_started, 0u);
  }
  static void expect_stale_part(const Result<Block>& part) {
    EXPECT_EQ(part.status().code(), Code::stale) << part.status().to_string();
  }

  std::function<void(Download&)> get_;
  int puts_ = 0;
  Block uploaded_;
};

TEST_F(RegionUse, AnInlineSegmentThatWasReusedIsStaleAloneInItsAnswer) {
  const Cache cache(*server_);
  for (const bool again : {false, true}) {
    get_ = [&](Download& out) {
      out.add(cache.block(0));
      out.add(cache.block(1));
      out.add(cache.block(2));
      cache.write(1, 100);
      if (again) (void)cache.block(1);
    };
    const Outcome<Pulled<Payload>> got = get();
    ASSERT_TRUE(got.ok()) << got.to_string();
    EXPECT_EQ(got->reply().text(), "got");
    ASSERT_EQ(got->parts().size(), 3u);
    ASSERT_TRUE(got->parts()[0].ok() && got->parts()[2].ok());
    EXPECT_TRUE(holds(got->parts()[0]->bytes(), 0));
    expect_stale_part(got->parts()[1]);
    EXPECT_TRUE(holds(got->parts()[2]->bytes(), 2));
    EXPECT_FALSE(got.info().bulk);
  }
}

TEST_F(RegionUse, AnInlineSegmentThatIsReusedWhileItIsCopiedIsStaleAlone) {
  InterruptedMemory kind;
  const Cache cache(*server_, &kind);
  get_ = [&](Download& out) {
    for (std::size_t i = 0; i < 3; ++i) out.add(cache.block(i));
    kind.meanwhile = [&] { cache.write(1, 100); };  // during the copy of each
  };
  const Outcome<Pulled<Payload>> got = get();
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_EQ(got->reply().text(), "got");
  ASSERT_TRUE(got->parts()[0].ok() && got->parts()[2].ok());
  EXPECT_TRUE(holds(got->parts()[0]->bytes(), 0));
  expect_stale_part(got->parts()[1]);
  EXPECT_TRUE(holds(got->parts()[2]->bytes(), 2));
  // The last one, and during its own copy.
  get_ = [&](Download& out) {
    kind.meanwhile = [&] { cache.write(4, 100); };
    out.add(cache.block(4));
  };
  const Outcome<Pulled<Payload>> alone = get();
  ASSERT_TRUE(alone.ok()) << alone.to_string();
  EXPECT_EQ(alone->reply().text(), "got");
  expect_stale_part(alone->parts()[0]);
}

TEST_F(RegionUse, ALentSegmentThatWasReusedIsStaleAloneInItsAnswer) {
  const Cache cache(*server_);
  for (const bool again : {false, true}) {
    get_ = [&](Download& out) {
      out.add(cache.block(0, 4));
      out.add(block_of(*server_, 50, 100'000));
      out.add(cache.block(4, 4));
      out.add(cache.block(8));
      out.add(cache.block(9, 4));
      out.add(cache.block(13));
      cache.write(6, 100);  // in the middle of the third part
      cache.write(12, 100);
      cache.write(13, 100);
      if (again) (void)cache.block(4, 12);
    };
    const Outcome<Pulled<Payload>> got = get();
    ASSERT_TRUE(got.ok()) << got.to_string();
    const std::span<const Result<Block>> parts = got->parts();
    ASSERT_EQ(parts.size(), 6u);
    ASSERT_TRUE(parts[0].ok() && parts[1].ok() && parts[3].ok());
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(holds(parts[0]->bytes().subspan(i * kBlock, kBlock), i));
    }
    EXPECT_TRUE(holds(parts[1]->bytes(), 50));
    expect_stale_part(parts[2]);
    EXPECT_TRUE(holds(parts[3]->bytes(), 8));
    expect_stale_part(parts[4]);
    expect_stale_part(parts[5]);
  }
  world_.run_for(std::chrono::seconds(1));
  EXPECT_EQ(server_->stats().pool.leases_live, 0u);
}

TEST_F(RegionUse, AnAnswerOfWhichNothingIsLeftToLendIsStillOne) {
  const Cache cache(*server_);
  get_ = [&](Download& out) {
    out.add(cache.block(0, 4));
    out.add(cache.block(4, 4));
    cache.write(3, 100);
    cache.write(4, 100);
    (void)cache.block(0, 8);
  };
  const Outcome<Pulled<Payload>> got = get();
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_EQ(got->reply().text(), "got");
  ASSERT_EQ(got->parts().size(), 2u);
  expect_stale_part(got->parts()[0]);
  expect_stale_part(got->parts()[1]);
  EXPECT_EQ(server_->stats().leases_lent, 0u);
  expect_quiet();
}

TEST_F(RegionUse, AnUploadOfWhatWasReusedIsNotSent) {
  const Cache cache(*client_);
  for (const std::size_t count : {std::size_t{1}, std::size_t{4}}) {  // inline, lent
    for (const bool again : {false, true}) {
      const Block old = cache.block(0, count);
      cache.write(count - 1, 100);
      if (again) (void)cache.block(0, count);
      expect_unsent_and_stale(put(lend(old)));
      expect_unsent_and_stale(put(lend(cache.block(8), old)));
    }
  }
  EXPECT_EQ(client_->stats().pool.leases_live, 0u);
  ASSERT_TRUE(put(lend(cache.block(0))).ok());
  EXPECT_TRUE(holds(uploaded_.bytes(), 100));
  EXPECT_EQ(puts_, 1);
}

TEST_F(RegionUse, AnUploadThatIsReusedBeforeItGoesOutIsNotSent) {
  const Cache cache(*client_);
  for (const std::size_t count : {std::size_t{1}, std::size_t{4}}) {
    std::optional<Outcome<Payload>> outcome;
    Started call;
    {
      const Poller::Scope scope(client_->poller());
      call = pawl::start(channel_.call(kPut, Payload(), lend(cache.block(0, count))),
                         Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> value) {
                                                      static_cast<decltype(outcome)*>(to)->emplace(
                                                          std::move(value));
                                                    },
                                                    &outcome});
    }
    cache.write(0, 100);
    ASSERT_TRUE(world_.run_until([&] { return outcome.has_value(); }));
    expect_unsent_and_stale(*outcome);
  }
}

TEST_F(RegionUse, AnInlineUploadThatIsReusedWhileItIsCopiedIsNotSent) {
  InterruptedMemory kind;
  const Cache cache(*client_, &kind);
  const Block block = cache.block(0);
  kind.meanwhile = [&] {
    cache.write(0, 100);
    (void)cache.block(0);
  };
  expect_unsent_and_stale(put(lend(block)));
}

TEST_F(RegionUse, OfATicketWhatWasReusedIsStale) {
  const Cache cache(*server_);
  const Block old = cache.block(0, 4);
  cache.write(2, 100);
  (void)cache.block(0, 4);
  const Duration deadline = std::chrono::seconds(1);
  EXPECT_EQ(server_->issue_ticket({old}, "server:1", deadline).status().code(), Code::stale);

  Result<Ticket> ticket =
      server_->issue_ticket({cache.block(0, 4), cache.block(4, 4)}, "server:1", deadline);
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  cache.write(2, 200);
  const Outcome<Pulled<Payload>> got =
      world_.run(*client_, client_->pull(*ticket, into(client_->pool())));
  ASSERT_TRUE(got.ok()) << got.to_string();
  ASSERT_EQ(got->parts().size(), 2u);
  expect_stale_part(got->parts()[0]);
  ASSERT_TRUE(got->parts()[1].ok());
  EXPECT_TRUE(holds(got->parts()[1]->bytes().first(kBlock), 4));
}

}  // namespace
}  // namespace pawl
