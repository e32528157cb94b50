// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>

namespace pawl::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kResidentTells = false;  // a sanitizer keeps what was freed
#else
inline constexpr bool kResidentTells = true;
#endif

inline std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}
/// Of this process; one more than there are, since looking takes one.
inline std::size_t open_files() { return entries_of("/proc/self/fd"); }
inline std::size_t threads() { return entries_of("/proc/self/task"); }

/// A figure of /proc/self/statm, in bytes.
inline std::size_t memory_figure(int index) {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages[2] = {};
  const int got = std::fscanf(file, "%lu %lu", &pages[0], &pages[1]);
  std::fclose(file);
  return got == 2 ? pages[index] * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 0;
}
inline std::size_t mapped_bytes() { return memory_figure(0); }
inline std::size_t resident_bytes() { return memory_figure(1); }

}  // namespace pawl::testing
