// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pawl {

/// CRC-32C (Castagnoli) as in iSCSI and RFC 3720: crc32c("123456789") is 0xe3069283. `so_far` is
/// the result for the bytes in front, for data in several pieces. Any thread.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t so_far = 0) noexcept;

}  // namespace pawl
