// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "conformance/fixture.h"
#include "pawl/testing.h"

namespace pawl::fabric::conformance {
namespace {

class Reads : public Conformance {
 protected:
  /// b's memory and a's, with different content.
  void SetUp() override {
    lent_ = &b_.area(kBytes);
    landing_ = &a_.area(kBytes);
    lent_->fill_pattern(0, kBytes, 1);
    landing_->fill(0, kBytes, '.');
    link_ = connect(a_, b_);
  }

  /// A READ that the owner must refuse: nothing lands outside of its segment, both ends go to ERR
  /// and what else was posted is flushed.
  void expect_refused(const Link& link, RemoteAddress from, std::uint32_t bytes) {
    const std::uint64_t waiting = a_.receive(link.a, landing_->segment(0, 64));
    const std::uint64_t owner_waiting = b_.receive(link.b, lent_->segment(0, 64));
    const std::uint64_t read = a_.read(link.a, landing_->segment(4096, bytes), from);
    ASSERT_TRUE(run_until([&] {
      return a_.event(EventKind::failed, link.a) && b_.event(EventKind::failed, link.b) &&
             a_.outstanding(link.a) == 0 && b_.outstanding(link.b) == 0;
    }));
    EXPECT_EQ(a_.status(read), "remote_access");
    EXPECT_EQ(a_.status(waiting), "flushed");
    EXPECT_EQ(b_.status(owner_waiting), "flushed");
    EXPECT_EQ(landing_->read(0, 4096), std::string(4096, '.'));
    EXPECT_EQ(landing_->read(4096 + bytes, 64), std::string(64, '.'));
  }

  bool exact_keys() { return b_.fabric().capabilities().exact_keys; }

  static constexpr std::size_t kBytes = 1 << 20;
  testing::ProtectedMemory guarded_;
  Area* lent_ = nullptr;
  Area* landing_ = nullptr;
  Link link_;
};
PAWL_CONFORMANCE(Reads);

TEST_P(Reads, MovesExactlyTheBytesAsked) {
  const RemoteAddress remote = expose(b_, *lent_, 8192, 65536);
  const std::string bytes = pattern(kBytes, 1).substr(8192, 65536);
  const std::uint64_t whole = a_.read(link_.a, landing_->segment(0, 65536), remote);
  const std::uint64_t middle = a_.read(link_.a, landing_->segment(100'001, 777),
                                       {.key = remote.key, .address = remote.address + 12345});
  const std::uint64_t last = a_.read(link_.a, landing_->segment(200'000, 1),
                                     {.key = remote.key, .address = remote.address + 65535});
  const std::array ids = {whole, middle, last};
  ASSERT_TRUE(run_until([&] { return a_.all_done(ids); }));
  EXPECT_EQ(a_.status(whole), "success");
  EXPECT_TRUE(landing_->read(0, 65536) == bytes);
  EXPECT_EQ(landing_->read(65536, 34'465), std::string(34'465, '.'));
  EXPECT_TRUE(landing_->read(100'001, 777) == bytes.substr(12345, 777));
  EXPECT_EQ(landing_->read(100'000, 1), ".");
  EXPECT_EQ(landing_->read(100'778, 1), ".");
  EXPECT_TRUE(landing_->read(200'000, 1) == bytes.substr(65535));
}

TEST_P(Reads, ScattersToSegments) {
  const RemoteAddress remote = expose(b_, *lent_, 0, 65536);
  std::vector<LocalSegment> to;
  std::string got;
  std::size_t total = 0;
  for (std::size_t i = 0; i < std::min(4u, a_.fabric().capabilities().read_segments_max); ++i) {
    to.push_back(landing_->segment(i * 20'000 + 1, 3000 + 1111 * i));
    total += to.back().length;
  }
  const std::uint64_t read = a_.post(link_.a, {.op = Opcode::read, .local = to, .remote = remote});
  ASSERT_TRUE(run_until([&] { return a_.done(read); }));
  for (std::size_t i = 0; i < to.size(); ++i) {
    got += landing_->read(i * 20'000 + 1, to[i].length);
    EXPECT_EQ(landing_->read(i * 20'000, 1), ".");
    EXPECT_EQ(landing_->read(i * 20'000 + 1 + to[i].length, 1), ".");
  }
  EXPECT_TRUE(got == pattern(kBytes, 1).substr(0, total));
}

TEST_P(Reads, MoreThanTheDepthAreServedAll) {
  const RemoteAddress remote = expose(b_, *lent_, 0, kBytes);
  std::vector<std::uint64_t> reads;
  for (std::size_t i = 0; i < 100; ++i) {
    reads.push_back(a_.read(link_.a, landing_->segment(i * 8000, 8000),
                            {.key = remote.key, .address = remote.address + i * 8000}));
  }
  ASSERT_TRUE(run_until([&] { return a_.all_done(reads); }));
  EXPECT_TRUE(landing_->read(0, 800'000) == pattern(kBytes, 1).substr(0, 800'000));
}

TEST_P(Reads, OnesBeyondTheDepthHoldUpWhatFollows) {
  if (std::string_view(GetParam().name).starts_with("faulty")) {
    GTEST_SKIP() << "this decorator takes the READs that it holds out of their queue";
  }
  // The message behind the second READ starts when the first has made room for that.
  constexpr std::size_t kRead = 1 << 19;
  const Link link = connect(a_, b_, {.group = {1}, .read_depth = 1});
  const RemoteAddress remote = expose(b_, *lent_, 0, kBytes);
  Area& slots = b_.area(4096, MemoryUse::messages);
  const std::uint64_t received = b_.receive(link.b, slots.segment(0, 64));
  bool first_was_there = false;
  b_.on_completion = [&](const Completion& c) {
    if (c.id != received) return;
    first_was_there = landing_->read(0, kRead) == pattern(kBytes, 1).substr(0, kRead);
  };
  const LocalSegment first = landing_->segment(0, kRead);
  const LocalSegment second = landing_->segment(kRead, kRead);
  const LocalSegment message = landing_->segment(0, 64);
  Status why;
  const auto ids = a_.post(link.a,
                           {{.op = Opcode::read, .local = std::span(&first, 1), .remote = remote},
                            {.op = Opcode::read, .local = std::span(&second, 1), .remote = remote},
                            {.op = Opcode::send, .local = std::span(&message, 1)}},
                           why);
  ASSERT_EQ(ids.size(), 3u) << why.to_string();
  ASSERT_TRUE(run_until([&] { return a_.all_done(ids) && b_.done(received); }));
  EXPECT_TRUE(first_was_there);
  for (const std::uint64_t id : ids) EXPECT_EQ(a_.status(id), "success");
}

TEST_P(Reads, OfManyMegabytes) {
  constexpr std::size_t kLarge = 6 << 20;
  Area& lent = b_.area(kLarge);
  Area& landing = a_.area(kLarge);
  lent.fill_pattern(0, kLarge, 9);
  const std::size_t bytes =
      std::min<std::size_t>(kLarge, a_.fabric().capabilities().read_bytes_max);
  const std::uint64_t read =
      a_.read(link_.a, landing.segment(0, bytes), expose(b_, lent, 0, kLarge));
  ASSERT_TRUE(run_until([&] { return a_.done(read); }));
  EXPECT_EQ(a_.status(read), "success");
  EXPECT_TRUE(landing.read(0, bytes) == pattern(kLarge, 9).substr(0, bytes));
}

TEST_P(Reads, BothWaysAndMessagesInBetween) {
  Area& lent = a_.area(65536);
  Area& landing = b_.area(65536);
  lent.fill_pattern(0, 65536, 2);
  const RemoteAddress of_a = expose(a_, lent, 0, 65536);
  const RemoteAddress of_b = expose(b_, *lent_, 0, 65536);
  Area& slots_a = a_.area(4096, MemoryUse::messages);
  Area& slots_b = b_.area(4096, MemoryUse::messages);
  slots_a.write(0, "message");
  for (std::size_t i = 0; i < 10; ++i) {
    b_.receive(link_.b, slots_b.segment(i * 64, 64));
    a_.read(link_.a, landing_->segment(i * 65536, 65536), of_b);
    a_.send(link_.a, slots_a.segment(0, 7));
    b_.read(link_.b, landing.segment(0, 65536), of_a);
    ASSERT_TRUE(run_until([&] { return a_.outstanding() == 0 && b_.outstanding() == 0; }));
    EXPECT_TRUE(landing.read(0, 65536) == pattern(65536, 2));
    EXPECT_TRUE(landing_->read(i * 65536, 65536) == pattern(kBytes, 1).substr(0, 65536));
    EXPECT_EQ(slots_b.read(i * 64, 7), "message");
  }
  for (const Completion& c : a_.completions) EXPECT_EQ(c.status, CompletionStatus::success);
}

TEST_P(Reads, UnsignalledOnesCompleteWithTheNextSignalledOne) {
  const RemoteAddress remote = expose(b_, *lent_, 0, 65536);
  const LocalSegment first = landing_->segment(0, 100);
  const LocalSegment second = landing_->segment(1000, 100);
  Status why;
  const auto quiet = a_.post(
      link_.a,
      {{.op = Opcode::read, .signalled = false, .local = std::span(&first, 1), .remote = remote}},
      why);
  run_for(20ms);
  EXPECT_TRUE(a_.completions.empty());
  const std::uint64_t loud = a_.read(link_.a, second, remote);
  ASSERT_TRUE(run_until([&] { return a_.done(loud); }));
  EXPECT_TRUE(a_.all_done(quiet));
  EXPECT_TRUE(landing_->read(0, 100) == pattern(kBytes, 1).substr(0, 100));
}

TEST_P(Reads, Promise4BeyondTheEndIsRefused) {
  if (!exact_keys()) GTEST_SKIP() << "keys open their registration";
  const RemoteAddress remote = expose(b_, *lent_, 4096, 8192);
  expect_refused(link_, remote, 8193);
}

TEST_P(Reads, Promise4PastTheEndIsRefused) {
  if (!exact_keys()) GTEST_SKIP() << "keys open their registration";
  const RemoteAddress remote = expose(b_, *lent_, 4096, 8192);
  expect_refused(link_, {.key = remote.key, .address = remote.address + 8192}, 1);
}

TEST_P(Reads, Promise4BeforeTheBeginningIsRefused) {
  if (!exact_keys()) GTEST_SKIP() << "keys open their registration";
  const RemoteAddress remote = expose(b_, *lent_, 4096, 8192);
  expect_refused(link_, {.key = remote.key, .address = remote.address - 1}, 100);
}

TEST_P(Reads, Promise4BeyondTheRegistrationIsRefused) {
  const RemoteAddress remote = expose(b_, *lent_, kBytes - 4096, 4096);
  expect_refused(link_, remote, 4097);
}

TEST_P(Reads, Promise4AnAddressThatWrapsIsRefused) {
  const RemoteAddress remote = expose(b_, *lent_, 4096, 8192);
  expect_refused(link_, {.key = remote.key, .address = ~std::uint64_t{0} - 15}, 64);
}

TEST_P(Reads, Promise4AnInventedKeyIsRefused) {
  const RemoteAddress remote = expose(b_, *lent_, 4096, 8192);
  expect_refused(link_, {.key = remote.key ^ 0x5a5a00, .address = remote.address}, 64);
}

TEST_P(Reads, Promise4AKeyOfAnotherGroupIsRefused) {
  if (!exact_keys()) GTEST_SKIP() << "keys open their registration";
  const RemoteAddress remote = expose(b_, *lent_, 4096, 8192, {2});
  expect_refused(link_, remote, 64);
  // The group itself reads on.
  const Link other = connect(c_, b_, {.group = {7}}, {.group = {2}});
  Area& landing = c_.area(4096);
  const std::uint64_t read = c_.read(other.a, landing.segment(0, 64), remote);
  ASSERT_TRUE(run_until([&] { return c_.done(read); }));
  EXPECT_EQ(c_.status(read), "success");
}

TEST_P(Reads, AKeyOpensEveryEndpointOfItsGroup) {
  const Link second = connect(a_, b_);
  const RemoteAddress remote = expose(b_, *lent_, 0, 4096);
  const std::array reads = {a_.read(link_.a, landing_->segment(0, 64), remote),
                            a_.read(second.a, landing_->segment(4096, 64), remote)};
  ASSERT_TRUE(run_until([&] { return a_.all_done(reads); }));
  EXPECT_EQ(a_.status(reads[0]), "success");
  EXPECT_EQ(a_.status(reads[1]), "success");
}

TEST_P(Reads, CloseGroupEndsItsKeysAndNoOthers) {
  if (!exact_keys()) GTEST_SKIP() << "keys open their registration";
  const RemoteAddress mine = expose(b_, *lent_, 0, 4096);
  const RemoteAddress other = expose(b_, *lent_, 0, 4096, {2});
  const Link second = connect(a_, b_, {.group = {2}}, {.group = {2}});
  b_.fabric().close_group({1});
  const std::uint64_t read = a_.read(second.a, landing_->segment(0, 64), other);
  ASSERT_TRUE(run_until([&] { return a_.done(read); }));
  EXPECT_EQ(a_.status(read), "success");
  landing_->fill(0, 64, '.');
  expect_refused(link_, mine, 64);
}

TEST_P(Reads, DeregisteringEndsTheKeys) {
  Area& short_lived = b_.area(4096);
  const RemoteAddress remote = expose(b_, short_lived, 0, 4096);
  ASSERT_TRUE(short_lived.deregister().ok());
  expect_refused(link_, remote, 64);
}

TEST_P(Reads, ExposeGivesTheSameKeyAgain) {
  const RemoteAddress first = expose(b_, *lent_, 4096, 8192);
  const RemoteAddress again = expose(b_, *lent_, 4096, 8192);
  EXPECT_EQ(first.key, again.key);
  EXPECT_EQ(first.address, again.address);
}

TEST_P(Reads, ExposeOfALargerLengthOpensTheLargerOne) {
  const RemoteAddress first = expose(b_, *lent_, 4096, 64);
  const RemoteAddress again = expose(b_, *lent_, 4096, 8192);
  const std::array reads = {a_.read(link_.a, landing_->segment(0, 8192), again),
                            a_.read(link_.a, landing_->segment(8192, 64), first)};
  ASSERT_TRUE(run_until([&] { return a_.all_done(reads); }));
  EXPECT_EQ(a_.status(reads[0]), "success");
  EXPECT_EQ(a_.status(reads[1]), "success");
}

TEST_P(Reads, ExposeChecksTheRightsAndTheBounds) {
  Fabric& fabric = b_.fabric();
  EXPECT_FALSE(fabric.expose({1}, lent_->handle(), lent_->at(kBytes - 10), 11).ok());
  EXPECT_FALSE(fabric.expose({1}, lent_->handle(), lent_->at(0), 0).ok());
  EXPECT_FALSE(fabric.expose({1}, MemoryHandle{0}, lent_->at(0), 16).ok());
  Area& slots = b_.area(4096, MemoryUse::messages);
  EXPECT_FALSE(fabric.expose({1}, slots.handle(), slots.at(0), 16).ok());
  Area& window_only = b_.area(4096, MemoryUse::bulk_window_only);
  EXPECT_FALSE(fabric.expose({1}, window_only.handle(), window_only.at(0), 16).ok());
  EXPECT_EQ(fabric.resources().keys, 0u);
}

TEST_P(Reads, GenerationWordsAreReadAsTheyAre) {
  Area& words = b_.area(4096, MemoryUse::generation_words);
  words.fill(0, 4096, '\0');
  const RemoteAddress remote = expose(b_, words, 64, 8);
  for (int i = 1; i <= 5; ++i) {
    words.write(64, std::string(8, static_cast<char>('0' + i)));
    const std::uint64_t read = a_.read(link_.a, landing_->segment(0, 8), remote);
    ASSERT_TRUE(run_until([&] { return a_.done(read); }));
    EXPECT_EQ(landing_->read(0, 8), std::string(8, static_cast<char>('0' + i)));
  }
}

TEST_P(Reads, Promise5NothingThatAReaderDoesChangesTheOwnersMemory) {
  const RemoteAddress remote = expose(b_, *lent_, 0, kBytes);
  const std::string before = lent_->read(0, kBytes);
  for (std::size_t i = 0; i < 20; ++i) {
    a_.read(link_.a, landing_->segment(i * 4096, 4096), remote);
  }
  a_.read(link_.a, landing_->segment(0, 64), {.key = remote.key + 1, .address = remote.address});
  ASSERT_TRUE(run_until([&] { return a_.outstanding() == 0; }));
  EXPECT_TRUE(lent_->read(0, kBytes) == before);
}

TEST_P(Reads, MemoryThatTheCpuCannotTouchIsMovedThroughItsKind) {
  Area& lent = b_.area(65536, MemoryUse::bulk, &guarded_);
  Area& landing = a_.area(65536, MemoryUse::bulk, &guarded_);
  if (!lent.registered() || !landing.registered()) GTEST_SKIP() << "host memory only";
  lent.fill_pattern(0, 65536, 4);
  const RemoteAddress remote = expose(b_, lent, 100, 60'000);
  const std::uint64_t read = a_.read(link_.a, landing.segment(1000, 60'000), remote);
  const std::uint64_t received = b_.receive(link_.b, lent.segment(61'000, 200));
  landing.write(0, "from device memory");
  const std::uint64_t sent = a_.send(link_.a, landing.segment(0, 18));
  ASSERT_TRUE(run_until([&] { return a_.done(read) && b_.done(received) && a_.done(sent); }));
  EXPECT_TRUE(landing.read(1000, 60'000) == pattern(65536, 4).substr(100, 60'000));
  EXPECT_EQ(lent.read(61'000, 18), "from device memory");
}

}  // namespace
}  // namespace pawl::fabric::conformance
