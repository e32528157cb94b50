// SPDX-License-Identifier: Apache-2.0
#include "memory/mapped.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>

namespace pawl::memory {

namespace {

/// "7f10c000-7f10d000 rw-p ...": from, to, what may be done.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool readable = false;
  bool writable = false;
};

bool parse(std::string_view line, Mapping& out) {
  const char* const last = line.data() + line.size();
  const auto begin = std::from_chars(line.data(), last, out.begin, 16);
  if (begin.ec != std::errc() || begin.ptr == last || *begin.ptr != '-') return false;
  const auto end = std::from_chars(begin.ptr + 1, last, out.end, 16);
  if (end.ec != std::errc() || last - end.ptr < 3 || *end.ptr != ' ') return false;
  out.readable = end.ptr[1] == 'r';
  out.writable = end.ptr[2] == 'w';
  return true;
}

}  // namespace

std::string read_maps() {
  std::ifstream in("/proc/self/maps");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Status check_mapped(std::span<const std::byte> memory, std::string_view maps) {
  if (maps.empty()) return {};
  auto at = reinterpret_cast<std::uintptr_t>(memory.data());  // up to here all is well
  const std::uintptr_t end = at + memory.size();
  while (!maps.empty() && at < end) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    Mapping mapping;
    if (!parse(line, mapping)) return {};  // not as we know it: nothing can be said
    if (mapping.end <= at) continue;
    if (mapping.begin > at) break;
    if (!mapping.readable || !mapping.writable) {
      return {Code::invalid_argument,
              "the memory of a region is mapped without the right to read and write it: pulls land "
              "in a region, and Region::reuse gives it out to be written; map it with PROT_READ | "
              "PROT_WRITE"};
    }
    at = mapping.end;
  }
  if (at >= end) return {};
  return {Code::invalid_argument,
          "the memory of a region is not mapped, or not all of it: check the address and the "
          "length, and that it was not unmapped already"};
}

}  // namespace pawl::memory
