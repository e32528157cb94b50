// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace pawl::memory_order_test {

/// What the owner does at the end of a round: the product's order, or the mistake that the test
/// must catch.
enum class Order : std::uint8_t { end_then_overwrite, overwrite_then_end };

struct Options {
  Order order = Order::end_then_overwrite;
  std::uint64_t rounds = 0;  ///< of the owner, and samples of the reader: at least
  std::uint64_t seed = 1;
};

struct Report {
  std::uint64_t rounds = 0;      ///< lent, ended, overwritten
  std::uint64_t samples = 0;     ///< of the reader
  std::uint64_t valid = 0;       ///< the check said valid
  std::uint64_t refused = 0;     ///< the check said stale
  std::uint64_t overlapped = 0;  ///< rounds with a sample of bytes of two uses: they were being
                                 ///< overwritten
  std::uint64_t wrong = 0;       ///< valid, and with bytes of another use
  double seconds = 0;            ///< for the reader of the log; nothing depends on it
  bool reader_left_well = false;

  [[nodiscard]] std::string to_string() const;
};

/// Two processes over shared memory. This one is the owner: it lends a buffer through the product's
/// pool and table of leases, ends the lease, overwrites the buffer for its next use, lends it
/// again. The other plays the device and the reader: it samples the bytes, and then asks the
/// lease's word. Runs until both did `rounds` and something overlapped, but no more than 50 times
/// that; with the mistake, until the first wrong sample, but no more than `rounds`.
Report hammer(const Options& options);

}  // namespace pawl::memory_order_test
