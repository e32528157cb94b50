// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "pawl/buffer.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/pool.h"
#include "pawl/region.h"
#include "pawl/result.h"

namespace pawl {

/// A part of a sequence of bytes.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = UINT64_MAX;  ///< UINT64_MAX: to the end
};

inline constexpr std::size_t kSegmentsMax = 1024;  ///< of one transfer

/// What an upload call lends to its callee: a list of Blocks of its node's memory, in order. Empty
/// Blocks are dropped.
/// The leases begin when the call is sent and end with the call; the Blocks stay the caller's.
class Lend {
 public:
  Lend() = default;
  explicit Lend(detail::FrameVector<Block> segments) : segments_(std::move(segments)) {}
  [[nodiscard]] std::span<const Block> segments() const { return segments_; }

 private:
  detail::FrameVector<Block> segments_;
};

/// lend(a), lend(a, b.slice(0, 4096)). Not lend({a, b}): g++ 12 has no array in a co_await
/// expression.
template <std::convertible_to<Block>... B>
requires(sizeof...(B) > 0) Lend lend(B&&... blocks) {
  detail::FrameVector<Block> segments;
  segments.reserve(sizeof...(B));
  (segments.emplace_back(std::forward<B>(blocks)), ...);
  return Lend(std::move(segments));
}
Lend lend(const Buffer&) = delete;  // only a Block can be lent: std::move(buffer).freeze()
/// Any number, named first: lend(std::move(blocks)).
template <std::same_as<std::vector<Block>> Blocks>
Lend lend(Blocks blocks) {
  return Lend(detail::FrameVector<Block>(std::move_iterator(blocks.begin()),
                                         std::move_iterator(blocks.end())));
}

/// Where a download lands.
class Into {
 public:
  struct Nowhere {};
  struct FromPool {
    Pool* pool;
  };
  class InRegion {
   public:
    InRegion(Region in, std::span<const ByteRange> at)
        : region(std::move(in)), ranges(at.begin(), at.end()) {}
    Region region;
    detail::FrameVector<ByteRange> ranges;
  };
  using Buffers = detail::FrameVector<Buffer>;
  using Target = std::variant<Nowhere, FromPool, Buffers, InRegion>;

  Into() = default;
  explicit Into(Target target) : target_(std::move(target)) {}

  /// Pulls only this part of each segment.
  Into& range(ByteRange range) & {
    range_ = range;
    return *this;
  }
  Into&& range(ByteRange range) && {
    range_ = range;
    return std::move(*this);
  }

  [[nodiscard]] const ByteRange& range() const { return range_; }
  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] Target& target() { return target_; }

 private:
  Target target_;
  ByteRange range_;
};

/// Into buffers of a pool, one per segment, taken when the answer says how large they are. The
/// pool belongs to the node of the call and outlives it.
inline Into into(Pool& pool) { return Into(Into::FromPool{&pool}); }
/// Into buffers of the caller's, one per segment. After a failure each comes back empty, when its
/// READs are done: see `Outcome::buffers_back`.
inline Into into(Buffer buffer) {
  Into::Buffers one;
  one.push_back(std::move(buffer));
  return Into(std::move(one));
}
inline Into into(std::vector<Buffer> buffers) {
  return Into(
      Into::Buffers(std::move_iterator(buffers.begin()), std::move_iterator(buffers.end())));
}
/// Into ranges of a region, one per segment. Their content is undefined until the call is ok.
inline Into into(Region region, ByteRange range) {
  return Into(Into::InRegion(std::move(region), std::span(&range, 1)));
}
template <std::same_as<std::vector<ByteRange>> Ranges>
Into into(Region region, Ranges ranges) {
  return Into(Into::InRegion(std::move(region), ranges));
}

/// Opaque bytes (at most kTicketBytesMax) that name lent memory: where its node listens,
/// incarnation, lease, generation, length. No key and no address: they may travel in somebody
/// else's message, through routers and logs. `Node::pull` fetches what they name.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

inline constexpr std::size_t kTicketBytesMax = 256;

}  // namespace pawl
