// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fabric/tcp/limits.h"

namespace pawl::fabric::tcp {
namespace {

static_assert(std::endian::native == std::endian::little, "the codec stores as it is in memory");

template <class T>
void put(std::byte* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

template <class T>
T get(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

}  // namespace

void encode_greeting(const Greeting& greeting, std::span<std::byte, kGreetingBytes> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::byte* const to = out.data();
  put(to, kMagic);
  put(to + 8, kVersionMajor);
  put(to + 10, kVersionMinor);
  put(to + 12, static_cast<std::uint8_t>(greeting.kind));
  put(to + 14, greeting.hello_bytes);
  put(to + 16, greeting.limits.message_bytes_max);
  put(to + 20, greeting.limits.read_bytes_max);
  put(to + 24, greeting.limits.read_depth);
  put(to + 28, greeting.limits.piece_bytes_max);
}

const char* decode_greeting(std::span<const std::byte, kGreetingBytes> in, Greeting& out) {
  const std::byte* const from = in.data();
  if (get<std::uint64_t>(from) != kMagic) return "its greeting does not start with Pawl's magic";
  if (get<std::uint16_t>(from + 8) != kVersionMajor) return "it speaks another major wire version";
  const auto kind = get<std::uint8_t>(from + 12);
  if (kind < 1 || kind > 3) return "its greeting is of an unknown kind";
  out.kind = static_cast<GreetingKind>(kind);
  out.hello_bytes = get<std::uint16_t>(from + 14);
  if (out.hello_bytes > kHelloBytesMax) return "its hello is larger than 4096 bytes";
  out.limits.message_bytes_max = get<std::uint32_t>(from + 16);
  out.limits.read_bytes_max = get<std::uint32_t>(from + 20);
  out.limits.read_depth = get<std::uint32_t>(from + 24);
  out.limits.piece_bytes_max = get<std::uint32_t>(from + 28);
  if (out.kind == GreetingKind::reject) return nullptr;
  if (out.limits.piece_bytes_max < kPieceBytesMin) return "it takes pieces of less than 4096 bytes";
  if (out.limits.message_bytes_max == 0 || out.limits.read_bytes_max == 0 ||
      out.limits.read_depth == 0) {
    return "one of its limits is zero";
  }
  return nullptr;
}

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameBytes> out) {
  std::byte* const to = out.data();
  put(to, static_cast<std::uint8_t>(header.type));
  put(to + 1, header.status);
  put(to + 2, std::uint16_t{0});
  put(to + 4, header.length);
  put(to + 8, header.value);
}

const char* decode_frame(std::span<const std::byte, kFrameBytes> in, FrameHeader& out) {
  const std::byte* const from = in.data();
  const auto type = get<std::uint8_t>(from);
  if (type < 1 || type > 5) return "a frame of unknown type";
  if (get<std::uint16_t>(from + 2) != 0) return "a frame whose reserved bytes are not zero";
  out.type = static_cast<FrameType>(type);
  out.status = get<std::uint8_t>(from + 1);
  out.length = get<std::uint32_t>(from + 4);
  out.value = get<std::uint64_t>(from + 8);
  if (out.type != FrameType::fault && out.status != 0) return "a frame with an unknown flag";
  return nullptr;
}

void encode_read_target(const ReadTarget& target, std::span<std::byte, 16> out) {
  put(out.data(), target.key);
  put(out.data() + 8, target.address);
}

ReadTarget decode_read_target(std::span<const std::byte, 16> in) {
  return {.key = get<std::uint64_t>(in.data()), .address = get<std::uint64_t>(in.data() + 8)};
}

void encode_trailer(const Trailer& trailer, std::span<std::byte, kTrailerBytes> out) {
  put(out.data(), trailer.read_id_low);
  put(out.data() + 4, static_cast<std::uint32_t>(trailer.status));
}

const char* decode_trailer(std::span<const std::byte, kTrailerBytes> in, Trailer& out) {
  out.read_id_low = get<std::uint32_t>(in.data());
  const auto status = get<std::uint32_t>(in.data() + 4);
  if (status > 2) return "a READ piece whose trailer has an unknown status";
  out.status = static_cast<PieceStatus>(status);
  return nullptr;
}

}  // namespace pawl::fabric::tcp
