// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pawl {

/// How the owner of lent bytes takes them back (docs/guarantees.md). A field of each lease, chosen
/// by the owner among those that both ends negotiated, visible in every outcome. The numbers are
/// wire format.
enum class Guard : std::uint8_t {
  verify = 1,         ///< the reader has the owner confirm after its READs completed
  verify_read = 2,    ///< the reader READs the generation word itself; host memory
  window = 3,         ///< type-2 memory window, revoked on timeout; exact devices
  window_verify = 4,  ///< both
  // Baselines for demo, bench and tests, refused unless NodeOptions::allow_baselines is set.
  none = 32,        ///< reuse at the timeout without protection: accepts wrong bytes
  disconnect = 33,  ///< the connection is broken before the caller sees the timeout
  deregister = 34,  ///< one registration per buffer
};

/// "verify", "none", …; "unknown" for a number that is not in the list.
std::string_view guard_name(Guard guard);
/// The guard of that name; nothing if there is none.
std::optional<Guard> guard_from_name(std::string_view name);

constexpr bool is_baseline(Guard guard) { return guard >= Guard::none; }

}  // namespace pawl
