// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pawl::fabric::verbs {

/// What epoll says with an event: endpoints by their id, which is never so small; listeners with
/// the top bit, which no id has.
inline constexpr std::uint64_t kResolverTag = 0;
inline constexpr std::uint64_t kWakeTag = 1;
inline constexpr std::uint64_t kChannelTag = 2;
inline constexpr std::uint64_t kDeviceTag = 3;
inline constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 63;

}  // namespace pawl::fabric::verbs
