// SPDX-License-Identifier: Apache-2.0
// Host memory on a system that promises pages and then does not give them.
#include <sys/mman.h>

#include <cerrno>
#include <set>

#include "memory/host_pages.h"
#include "memory_fixture.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::HostCalls;
using memory::HostPages;
using memory::map_pages;

/// What the system does. Memory whose pages it will not give is PROT_NONE: to touch it is the end
/// of the process, as it is on huge pages that the control group does not grant.
struct System {
  int huge_error = 0;         ///< of mmap with MAP_HUGETLB; 0: it promises
  int huge_populate = 0;      ///< of populating what it promised
  int transparent_error = 0;  ///< of populating 2 MiB pages asked for by MADV_HUGEPAGE
  int plain_error = 0;
  std::set<void*> huge, transparent;
  std::size_t bytes_mapped = 0, bytes_populated = 0;
};
System* system_now = nullptr;

void* fake_map(std::size_t bytes, int flags) {
  System& system = *system_now;
  const bool huge = (flags & MAP_HUGETLB) != 0;
  if (huge && system.huge_error != 0) {
    errno = system.huge_error;
    return MAP_FAILED;
  }
  const int error = huge ? system.huge_populate : system.plain_error;
  const bool given = error == 0 || error == EINVAL;
  void* memory = ::mmap(nullptr, bytes, given ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (huge) system.huge.insert(memory);
  system.bytes_mapped += bytes;
  return memory;
}
int fake_unmap(void* memory, std::size_t bytes) {
  system_now->bytes_mapped -= bytes;
  system_now->huge.erase(memory);
  return ::munmap(memory, bytes);
}
int fake_advise(void* memory, std::size_t bytes, int advice) {
  System& system = *system_now;
  if (advice == MADV_HUGEPAGE) {
    system.transparent.insert(memory);
    return 0;
  }
  EXPECT_EQ(advice, MADV_POPULATE_WRITE);
  const int error = system.huge.contains(memory)          ? system.huge_populate
                    : system.transparent.contains(memory) ? system.transparent_error
                                                          : system.plain_error;
  system.transparent.erase(memory);
  if (error == 0) system.bytes_populated += bytes;
  errno = error;
  return error == 0 ? 0 : -1;
}
constexpr HostCalls kFake = {&fake_map, &fake_unmap, &fake_advise,
                             [] { return std::size_t{4096}; }};

// A kernel with pages of 64 KiB: it maps whole ones, at multiples of them, and takes back nothing
// else.
constexpr std::size_t kLargePage = 64 * kKiB;

void* fake_map_large(std::size_t bytes, int flags) {
  if ((flags & MAP_HUGETLB) != 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const std::size_t whole = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  auto* const memory = static_cast<std::byte*>(::mmap(
      nullptr, whole + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const std::size_t skip =
      (kLargePage - reinterpret_cast<std::uintptr_t>(memory) % kLargePage) % kLargePage;
  if (skip != 0) ::munmap(memory, skip);
  ::munmap(memory + skip + whole, kLargePage - skip);
  system_now->bytes_mapped += whole;
  return memory + skip;
}
int fake_unmap_large(void* memory, std::size_t bytes) {
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(memory) % kLargePage != 0) {
    errno = EINVAL;
    return -1;
  }
  const std::size_t whole = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  system_now->bytes_mapped -= whole;
  return ::munmap(memory, whole);
}
constexpr HostCalls kLargePages = {&fake_map_large, &fake_unmap_large, &fake_advise,
                                   [] { return kLargePage; }};

class MemoryPages : public ::testing::Test {
 protected:
  MemoryPages() { system_now = &system_; }
  HostPages map(std::size_t bytes) { return map_pages(bytes, kFake); }
  void give_back(const HostPages& pages, std::size_t bytes) {
    fake_unmap(pages.base, bytes);
    EXPECT_EQ(system_.bytes_mapped, 0u);
  }
  System system_;
};

TEST_F(MemoryPages, HugeOnesWhereTheSystemHasThem) {
  const HostPages got = map(2 * kMiB);
  EXPECT_EQ(got.pages, &PageCounts::huge);
  EXPECT_EQ(system_.bytes_populated, 2 * kMiB);
  give_back(got, 2 * kMiB);
}

// Found: the failure was ignored and the pages touched, which is SIGBUS.
TEST_F(MemoryPages, HugeOnesThatAreRefusedWhenTouchedAreGivenBack) {
  for (const int error : {EFAULT, ENOMEM, EINVAL}) {
    system_.huge_populate = error;
    const HostPages got = map(4 * kMiB);
    ASSERT_NE(got.base, nullptr);
    EXPECT_EQ(got.pages, &PageCounts::transparent);
    EXPECT_TRUE(system_.huge.empty()) << "the huge mapping is gone";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.base) % (2 * kMiB), 0u);
    got.base[4 * kMiB - 1] = std::byte{1};
    give_back(got, 4 * kMiB);
  }
}

TEST_F(MemoryPages, TransparentOnesThatFailAreReplacedByPlainOnes) {
  system_.huge_error = ENOMEM;
  system_.transparent_error = ENOMEM;
  const HostPages got = map(2 * kMiB);
  EXPECT_EQ(got.pages, &PageCounts::plain);
  EXPECT_EQ(system_.bytes_populated, 2 * kMiB);
  give_back(got, 2 * kMiB);
}

TEST_F(MemoryPages, NoPagesAtAllIsAnErrorAndNothingIsTouched) {
  system_.huge_error = system_.transparent_error = system_.plain_error = ENOMEM;
  for (const std::size_t bytes : {64 * kKiB, 2 * kMiB}) {
    const HostPages got = map(bytes);
    EXPECT_EQ(got.base, nullptr);
    EXPECT_EQ(got.error, ENOMEM);
    EXPECT_EQ(system_.bytes_mapped, 0u);
  }
}

TEST_F(MemoryPages, AKernelThatCannotPopulateHasItsPagesTouched) {
  system_.huge_error = ENOMEM;
  system_.transparent_error = system_.plain_error = EINVAL;
  const HostPages got = map(64 * kKiB);
  ASSERT_NE(got.base, nullptr);
  std::array<unsigned char, 16> there{};
  ASSERT_EQ(::mincore(got.base, 64 * kKiB, there.data()), 0);
  for (const unsigned char page : there) EXPECT_EQ(page & 1, 1);
  give_back(got, 64 * kKiB);
}

// Case 101: with larger pages too what is mapped is aligned, and freed whole.
TEST_F(MemoryPages, OfSixtyFourKibibytesAreMappedAndFreedWhole) {
  for (const int populate : {0, EINVAL}) {
    system_.transparent_error = system_.plain_error = populate;
    for (const std::size_t bytes : {kLargePage, 5 * kLargePage, 2 * kMiB}) {
      const HostPages got = map_pages(bytes, kLargePages);
      ASSERT_NE(got.base, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.base) % kLargePage, 0u);
      EXPECT_EQ(system_.bytes_mapped, bytes);
      got.base[bytes - 1] = std::byte{1};
      EXPECT_EQ(fake_unmap_large(got.base, bytes), 0);
      EXPECT_EQ(system_.bytes_mapped, 0u);
    }
  }
}

}  // namespace
}  // namespace pawl
