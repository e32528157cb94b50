// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/lease.h"
#include "shared.h"

namespace pawl::memory_order_test {

/// The other process: samples the buffer under the generation that it was told (D), waits for the
/// loads (C), and asks the lease (F). The `Lease` is this process's copy of the owner's object; its
/// word is the owner's.
void read_until_stopped(Shared& shared, const memory::Lease& lease, const std::byte* memory,
                        std::uint64_t seed);

}  // namespace pawl::memory_order_test
