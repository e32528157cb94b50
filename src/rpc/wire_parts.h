// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "rpc/wire.h"

/// What the codecs of the bodies share. Included by src/rpc/wire_*.cc only.
namespace pawl::rpc::parts {

inline constexpr const char* kShort = "a body is shorter than its fixed part and its lengths say";
inline constexpr const char* kTrailing = "a body is longer than its fixed part and its lengths say";

inline bool refuse(const char*& why, const char* sentence) {
  why = sentence;
  return false;
}

/// The end of a decoder: everything was there, and nothing is left over.
inline bool finish(const Reader& in, const char*& why) {
  if (!in.ok()) return refuse(why, kShort);
  if (in.remaining() != 0) return refuse(why, kTrailing);
  return true;
}

/// The end of an encoder.
inline std::size_t finish(const Writer& out) {
  PAWL_CHECK(out.ok(), "a frame is encoded into less room than it needs");
  return out.size();
}

/// False for a number that is not in the list; `out` is then Code::internal.
bool code_from_wire(std::uint8_t number, Code& out);
bool ran_from_wire(std::uint8_t number, Ran& out);
bool guard_from_wire(std::uint8_t number, Guard& out);

void put(Writer& out, const LeaseName& lease);
LeaseName get_lease_name(Reader& in);

/// A lease descriptor and its list of segments.
std::size_t descriptor_bytes(const std::optional<LeaseDescriptor>& lease,
                             std::span<const std::byte> segments);
void put_descriptor(Writer& out, const LeaseDescriptor& lease, std::span<const std::byte> segments);
/// Checks every segment too, and adds up the bytes of inline ones.
bool get_descriptor(Reader& in, LeaseDescriptor& lease, std::span<const std::byte>& segments,
                    std::uint64_t& inline_bytes, const char*& why);

/// Every entry whole, nothing left over.
bool metadata_well_formed(std::span<const std::byte> encoded);

}  // namespace pawl::rpc::parts
