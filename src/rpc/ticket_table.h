// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "pawl/buffer.h"
#include "pawl/bulk.h"
#include "pawl/poller.h"
#include "pawl/result.h"
#include "pawl/service.h"
#include "pawl/time.h"

namespace pawl::rpc {

/// The fields of a ticket. On the wire: u8 version (1), u8 address bytes, u64 incarnation, u64 id,
/// u64 generation, u64 length of all segments, address.
struct TicketFields {
  std::string address;
  std::uint64_t incarnation = 0;
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::uint64_t length = 0;
};
Result<Ticket> encode_ticket(const TicketFields& fields);
Result<TicketFields> decode_ticket(std::string_view bytes);

/// What a node's tickets name, until their deadline. Any thread.
class TicketTable {
 public:
  TicketTable(std::uint64_t incarnation, std::uint64_t seed)
      : incarnation_(incarnation), random_(seed) {}

  Result<Ticket> issue(std::vector<Block> blocks, std::string_view address, TimePoint deadline);
  void end(const TicketFields& ticket);
  /// stale if it is over, or of another incarnation of the node.
  Result<std::vector<Block>> find(const TicketFields& ticket, TimePoint now);
  /// Drops what is past its deadline and says when to come again. Poller 0.
  TimePoint sweep(TimePoint now);
  void clear();

 private:
  struct Entry {
    std::uint64_t generation = 0;
    std::vector<Block> blocks;
    TimePoint deadline;
  };

  const std::uint64_t incarnation_;
  std::mutex mutex_;
  Random random_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

/// The method by which a ticket is pulled: an ordinary download call.
inline constexpr Method kTicketPull =
    make_method("pawl.Tickets/Pull", BulkDirection::download, true);

class TicketService final : public Service {
 public:
  explicit TicketService(TicketTable& table) : table_(table) {}
  [[nodiscard]] std::span<const Method> methods() const override { return {&kTicketPull, 1}; }
  Operation<Result<Payload>> handle(std::size_t index, Call& call,
                                    std::span<const std::byte> request, Upload& in,
                                    Download& out) override;

 private:
  TicketTable& table_;
};

}  // namespace pawl::rpc
