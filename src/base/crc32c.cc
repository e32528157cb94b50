// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace pawl {

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t so_far) noexcept {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // isa-l counts with an int
  std::uint32_t state = ~so_far;
  while (!data.empty()) {
    const auto piece = data.first(std::min(data.size(), kPieceBytes));
    // isa-l does not write, it only forgot the const.
    auto* bytes = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    state = ::crc32_iscsi(bytes, static_cast<int>(piece.size()), state);
    data = data.subspan(piece.size());
  }
  return ~state;
}

}  // namespace pawl
