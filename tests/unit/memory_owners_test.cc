// SPDX-License-Identifier: Apache-2.0
// Which memory may become a Region: bytes that have no other owner, mapped readable and writable.
#include <sys/mman.h>

#include <string>

#include "memory/mapped.h"
#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::check_mapped;

constexpr std::size_t kPage = 4096;

void expect_refused(const Result<Region>& region, Code code, std::string_view what) {
  EXPECT_EQ(region.status().code(), code);
  EXPECT_NE(region.status().what().find(what), std::string_view::npos) << region.status().what();
}

TEST(MemoryOwners, TwoRegionsShareNoByte) {
  Pool pool(small_pool());
  alignas(kPage) static std::byte memory[8 * kPage];
  const std::span<std::byte> all(memory);
  Region middle = *Region::create(pool, all.subspan(2 * kPage, 4 * kPage), nullptr);
  const std::span<std::byte> refused[] = {all, all.first(3 * kPage), all.subspan(5 * kPage),
                                          all.subspan(3 * kPage, kPage),
                                          all.subspan(2 * kPage, 4 * kPage)};
  for (const std::span<std::byte> each : refused) {
    expect_refused(Region::create(pool, each, nullptr), Code::failed_precondition, "one owner");
  }
  EXPECT_TRUE(Region::create(pool, all.first(2 * kPage), nullptr).ok())
      << "it ends where it begins";
  EXPECT_TRUE(Region::create(pool, all.subspan(6 * kPage), nullptr).ok());
  middle = Region();
  EXPECT_TRUE(Region::create(pool, all, nullptr).ok()) << "the others are gone";
}

TEST(MemoryOwners, AClosedRegionsBytesAreFree) {
  PoolRig rig(small_pool());
  alignas(kPage) static std::byte memory[2 * kPage];
  Region first = *Region::create(rig.pool, memory, nullptr);
  Awaited<Status> closed(rig, first.close());
  ASSERT_TRUE(closed.done());
  EXPECT_TRUE(Region::create(rig.pool, memory, nullptr).ok());
}

// The helper thread, which deregisters it, may be slow.
TEST(MemoryOwners, WhatIsLeftFromADroppedRegionRefusesNothing) {
  PoolOptions options = small_pool();
  options.grow_inline = false;
  Pool pool(options);
  alignas(kPage) static std::byte memory[2 * kPage];
  for (int i = 0; i < 100; ++i) {
    const Result<Region> region = Region::create(pool, memory, nullptr);
    ASSERT_TRUE(region.ok()) << region.status().to_string();
  }
}

TEST(MemoryOwners, ThePoolsOwnBuffersAreNoRegion) {
  Pool pool(small_pool());
  Buffer buffer = must(pool.try_acquire(2 * kPage));
  expect_refused(Region::create(pool, buffer.bytes(), nullptr), Code::failed_precondition,
                 "one of its buffers");
  Pool other(small_pool());
  EXPECT_TRUE(Region::create(other, buffer.bytes(), nullptr).ok()) << "not seen, as documented";
}

class Mapped {
 public:
  explicit Mapped(std::size_t bytes)
      : bytes_(bytes),
        base_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { ::munmap(base_, bytes_); }
  [[nodiscard]] std::span<std::byte> span() const { return {base_, bytes_}; }
  void protect(std::size_t page, int rights) const {
    EXPECT_EQ(::mprotect(base_ + page * kPage, kPage, rights), 0);
  }

 private:
  const std::size_t bytes_;
  std::byte* const base_;
};

TEST(MemoryOwners, MemoryThatCannotBeWrittenIsNoRegion) {
  Pool pool(small_pool());
  for (const int rights : {PROT_READ, PROT_NONE, PROT_WRITE}) {
    const Mapped memory(4 * kPage);
    ASSERT_TRUE(Region::create(pool, memory.span(), nullptr).ok());
    memory.protect(3, rights);
    expect_refused(Region::create(pool, memory.span(), nullptr), Code::invalid_argument,
                   "PROT_READ | PROT_WRITE");
    EXPECT_TRUE(Region::create(pool, memory.span().first(3 * kPage), nullptr).ok());
  }
}

TEST(MemoryOwners, MemoryThatIsNotMappedIsNoRegion) {
  Pool pool(small_pool());
  std::span<std::byte> gone;
  {
    const Mapped memory(4 * kPage);
    gone = memory.span();
  }
  expect_refused(Region::create(pool, gone, nullptr), Code::invalid_argument, "not mapped");
}

TEST(MemoryOwners, EveryPageIsLookedAt) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const auto range = [](std::uintptr_t begin, std::uintptr_t end) {
    return std::span(reinterpret_cast<const std::byte*>(begin), end - begin);
  };
  constexpr std::string_view maps =
      "1000-3000 rw-p 00000000 00:00 0\n"
      "3000-4000 rw-s 00000000 00:00 0          /a file\n"
      "5000-6000 rw-p 00000000 00:00 0\n"
      "6000-7000 r--p 00000000 00:00 0\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";
  EXPECT_TRUE(check_mapped(range(0x1000, 0x4000), maps).ok());
  EXPECT_TRUE(check_mapped(range(0x2800, 0x3001), maps).ok());
  EXPECT_TRUE(check_mapped(range(0x5000, 0x6000), maps).ok());
  EXPECT_FALSE(check_mapped(range(0x0800, 0x2000), maps).ok()) << "begins before";
  EXPECT_FALSE(check_mapped(range(0x3000, 0x6000), maps).ok()) << "a hole";
  EXPECT_FALSE(check_mapped(range(0x3000, 0x4001), maps).ok()) << "ends behind";
  EXPECT_FALSE(check_mapped(range(0x5fff, 0x6001), maps).ok()) << "its last byte is read-only";
  EXPECT_FALSE(check_mapped(range(0x8000, 0x9000), maps).ok());
  EXPECT_TRUE(check_mapped(range(0x8000, 0x9000), "").ok()) << "no /proc: nothing is known";
}

}  // namespace
}  // namespace pawl
