// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// How the demo writes numbers and sentences.
namespace pawl::tools {

/// 1234567 -> "1,234,567"
std::string grouped(std::uint64_t n);
/// The same where that has at most `width` characters, else "1.2 M".
std::string count_text(std::uint64_t n, std::size_t width);
/// "12.3 MB"; below 1 kB without a fraction. At most 7 characters below 1000 GB.
std::string bytes_text(double bytes);
/// "1.5 ms"; "-" for 0.
std::string time_text(std::uint64_t ns);

/// `text` with its lines broken between words so that none has more than `columns` characters; a
/// longer word stays whole. 0 columns: no limit.
std::string wrapped(std::string_view text, std::size_t columns);

}  // namespace pawl::tools
