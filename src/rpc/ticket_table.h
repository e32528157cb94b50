// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  TicketTable(std::uint64_t incarnation, std::uint64_t seed, std::size_t tickets_max)
      : incarnation_(incarnation), tickets_max_(tickets_max), random_(seed) {}

  /// resource_exhausted if tickets_max are not over yet.
  Result<Ticket> issue(std::vector<Block> blocks, std::string_view address, TimePoint now,
                       TimePoint deadline);
  void end(const TicketFields& ticket);
  /// stale if it is over, or of another incarnation of the node.
  Result<std::vector<Block>> find(const TicketFields& ticket, TimePoint now);
  /// Drops what is past its deadline, looks at nothing else, and says when to come again (never()
  /// if there is no ticket); who calls it does come.
  TimePoint sweep(TimePoint now);
  /// True if nobody comes by `deadline`: then the caller sees to it that somebody sweeps soon.
  [[nodiscard]] bool wants_sweep(TimePoint deadline);
  [[nodiscard]] std::size_t size() const;
  void clear();

 private:
  struct Entry {
    std::uint64_t generation = 0;
    std::vector<Block> blocks;
    TimePoint deadline;
  };

  void expire_locked(TimePoint now, std::vector<Entry>& gone);

  const std::uint64_t incarnation_;
  const std::size_t tickets_max_;
  mutable std::mutex mutex_;
  Random random_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::set<std::pair<TimePoint, std::uint64_t>> by_deadline_;  // and id; of each entry
  TimePoint sweep_at_ = TimePoint::never();                    // somebody comes
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
