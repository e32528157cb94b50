// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "pawl/guard.h"
#include "pawl/status.h"

/// What one side tells the other about lent bytes. The byte layouts are wire format: docs/wire.md.
namespace pawl::bulk {

enum class KeyKind : std::uint8_t { none = 0, region = 1, window = 2 };

/// One lent segment. 32 bytes: u8 kind, u8 status code, u16 flags (1: inline), u32 reserved,
/// u64 length, u64 key, u64 address. An inline segment's bytes stand at the end of the payload,
/// in order (the payload's length counts them). Kind none, key 0 and address 0 go with: inline; an
/// error code, then length 0; or an empty segment. A segment with a key has bytes.
struct SegmentDescriptor {
  static constexpr std::size_t kBytes = 32;

  KeyKind kind = KeyKind::none;
  Code code = Code::ok;
  bool inline_bytes = false;
  std::uint64_t length = 0;
  std::uint64_t key = 0;
  std::uint64_t address = 0;
};

/// The name of a lease on the wire; the epoch is the connection's.
struct LeaseName {
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  friend bool operator==(const LeaseName&, const LeaseName&) = default;
};

/// What a descriptor says besides its segments. 40 bytes: u64 id, u64 generation, u8 guard,
/// u8 data endpoint, u16 segments, u32 reserved, u64 word key, u64 word address. Generation 0:
/// nothing is lent, all segments are inline, empty or errors. Else the keys of all segments are of
/// the guard's kind: window for window and window_verify, region for the others.
struct LeaseDescriptor {
  static constexpr std::size_t kBytes = 40;

  LeaseName lease;
  Guard guard = Guard::verify;
  std::uint8_t endpoint = 0;
  std::uint16_t segments = 0;
  std::uint64_t word_key = 0;
  std::uint64_t word_address = 0;
};

}  // namespace pawl::bulk
