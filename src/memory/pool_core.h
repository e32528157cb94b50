// SPDX-License-Identifier: Apache-2.0
#pragma once

// A sketch of what the layers above need from the pool; the memory layer fills it in.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "memory/lease.h"
#include "memory/registrar.h"
#include "pawl/operation.h"
#include "pawl/pool.h"

namespace pawl::detail {

class PoolCore {
 public:
  /// Registers all memory, now and later, with a device; blocks while it does. The returned index
  /// names the device in `Extent::handle`. A slab that the device refuses is unusable there only
  /// (handle 0) and the reason is kept in `last_registration_error`. At most kDevicesMax.
  Result<std::size_t> attach(Registrar& registrar);
  /// Deregisters everything there. The caller has ended every connection over it.
  void detach(std::size_t device);

  memory::LeaseTable& leases();

  /// Landing buffers of one transfer: all or none, first come first served, may use the landing
  /// reserve. `sizes` each 1..64 MiB.
  Operation<Result<std::vector<Buffer>>> acquire_landing(std::span<const std::size_t> sizes,
                                                         TimePoint deadline);
  /// The same at once, or resource_exhausted.
  Result<std::vector<Buffer>> try_acquire_landing(std::span<const std::size_t> sizes);

  /// Non-pool memory of the library's own (message slots), registered with every device.
  Result<Buffer> allocate_messages(std::size_t bytes);
};

}  // namespace pawl::detail
