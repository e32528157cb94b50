// SPDX-License-Identifier: Apache-2.0
#include "pawl/pool.h"

#include <utility>

#include "memory/pool_core.h"

namespace pawl {

Pool::Pool(const PoolOptions& options, const Clock* clock)
    : core_(std::make_shared<detail::PoolCore>(options, clock)) {}

Pool::~Pool() { core_->close(); }

Result<Buffer> Pool::try_acquire(std::size_t bytes) { return core_->try_acquire(bytes); }

Operation<Result<Buffer>> Pool::acquire(std::size_t bytes, Duration deadline) {
  return core_->acquire(bytes, deadline);
}

Result<Block> Pool::copy_of(std::span<const std::byte> bytes) {
  Result<Buffer> buffer = try_acquire(bytes.size());
  if (!buffer.ok()) return buffer.status();
  if (Status copied = buffer->copy_in(0, bytes); !copied.ok()) return copied;
  return std::move(*buffer).freeze();
}

PoolStats Pool::stats() const { return core_->stats(); }

}  // namespace pawl
