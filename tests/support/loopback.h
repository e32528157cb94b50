// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pawl::testing {

/// Why nothing can listen on [::1] of this machine, for GTEST_SKIP; nullptr if something can. Tried
/// once.
const char* ipv6_missing();

/// From now on no socket of IPv6 can be made by this thread and the threads that it starts, as on a
/// kernel without IPv6. Why that cannot be had, for GTEST_SKIP; nullptr if it is so.
const char* forbid_ipv6();

}  // namespace pawl::testing
