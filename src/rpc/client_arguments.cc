// SPDX-License-Identifier: Apache-2.0
// The user's mistakes in a call, found before anything is sent.
#include <algorithm>
#include <variant>
#include <vector>

#include "memory/buffer_access.h"
#include "memory/pool_core.h"
#include "rpc/client_call.h"

namespace pawl::rpc {

namespace {

/// A device of this node knows only memory that was registered with it.
bool of_pool(const Into::Target& target, const detail::PoolCore& pool) {
  if (const auto* from_pool = std::get_if<Into::FromPool>(&target)) {
    return &from_pool->pool->core() == &pool;
  }
  if (const auto* buffers = std::get_if<Into::Buffers>(&target)) {
    return std::all_of(buffers->begin(), buffers->end(),
                       [&](const Buffer& each) { return BufferAccess::of_pool(each, pool); });
  }
  if (const auto* in_region = std::get_if<Into::InRegion>(&target)) {
    return RegionAccess::of_pool(in_region->region, pool);
  }
  return true;
}

}  // namespace

Status ClientCall::check_arguments(const detail::PoolCore& pool) const {
  const std::span<const Block> blocks = lend_.segments();
  const bool lands = !std::holds_alternative<Into::Nowhere>(into_.target());
  if (!blocks.empty() && method_.bulk != BulkDirection::upload) {
    return {Code::invalid_argument, "lend() goes with upload methods only"};
  }
  if (lands && method_.bulk != BulkDirection::download) {
    return {Code::invalid_argument, "into() goes with download methods only"};
  }
  if (!blocks.empty() && method_.one_way) {
    return {Code::invalid_argument,
            "a one-way method cannot lend: its call is over before anything could be read"};
  }
  if (blocks.size() > kSegmentsMax) {
    return {Code::too_large, "more than 1024 blocks are lent in one call"};
  }
  if (!std::all_of(blocks.begin(), blocks.end(),
                   [&](const Block& each) { return BufferAccess::of_pool(each, pool); })) {
    return {Code::failed_precondition,
            "lend() was given a block of another node's pool: a call lends memory of the node that "
            "its channel belongs to"};
  }
  if (!of_pool(into_.target(), pool)) {
    return {Code::failed_precondition,
            "into() was given memory of another node's pool: a call lands in memory of the node "
            "that its channel belongs to"};
  }
  if (metadata_.size() > kMetadataBytesMax) {
    return {Code::too_large, "the metadata is longer than 8192 bytes"};
  }
  return {};
}

}  // namespace pawl::rpc
