// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pawl {

/// Why memory is held although the call that used it is over: its device, or the peer, may still
/// reach it. Time never ends this, only proof (docs/ownership.md).
enum class QuarantineReason : std::uint8_t {
  none,
  read_in_flight,  ///< a READ into it has not completed
  endpoint_drain,  ///< an endpoint that may reach it is being torn down, and is not gone yet
  cancel_unacked,  ///< hold_until_ack: the peer has not acknowledged the cancel
  window_revoke,   ///< a memory window over it is not proven to have ended
};
inline constexpr std::size_t kQuarantineReasons = 5;

/// "read in flight", …
std::string_view quarantine_reason_name(QuarantineReason reason);

}  // namespace pawl
