// SPDX-License-Identifier: Apache-2.0
#include "rpc/ticket_table.h"

#include <utility>

#include "base/bytes.h"
#include "fabric/socket/address.h"
#include "memory/buffer_access.h"

namespace pawl::rpc {

namespace {
constexpr std::uint8_t kTicketVersion = 1;
constexpr std::size_t kTicketFixedBytes = 2 + 4 * 8;
}  // namespace

Result<Ticket> encode_ticket(const TicketFields& fields) {
  if (fields.address.empty() || fields.address.size() > kTicketBytesMax - kTicketFixedBytes) {
    return Status(Code::invalid_argument,
                  "a ticket needs the address where its node listens, of at most 222 bytes");
  }
  std::string bytes(kTicketFixedBytes + fields.address.size(), '\0');
  Writer writer(std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  writer.u8(kTicketVersion);
  writer.u8(static_cast<std::uint8_t>(fields.address.size()));
  writer.u64(fields.incarnation);
  writer.u64(fields.id);
  writer.u64(fields.generation);
  writer.u64(fields.length);
  writer.bytes(std::as_bytes(std::span(fields.address.data(), fields.address.size())));
  return Ticket(std::move(bytes));
}

Result<TicketFields> decode_ticket(std::string_view bytes) {
  Reader reader(std::as_bytes(std::span(bytes.data(), bytes.size())));
  const std::uint8_t version = reader.u8();
  const std::uint8_t address_bytes = reader.u8();
  TicketFields fields;
  fields.incarnation = reader.u64();
  fields.id = reader.u64();
  fields.generation = reader.u64();
  fields.length = reader.u64();
  const std::span<const std::byte> address = reader.bytes(address_bytes);
  if (!reader.ok() || bytes.size() != kTicketFixedBytes + address_bytes || address.empty() ||
      bytes.size() > kTicketBytesMax) {
    return Status(Code::invalid_argument, "these bytes are not a ticket: they were cut or changed");
  }
  if (version != kTicketVersion) {
    return Status(Code::unimplemented, "the ticket is of another version than this node knows");
  }
  fields.address.assign(reinterpret_cast<const char*>(address.data()), address.size());
  return fields;
}

Result<Ticket> TicketTable::issue(std::vector<Block> blocks, std::string_view address,
                                  TimePoint now, TimePoint deadline) {
  std::erase_if(blocks, [](const Block& block) { return block.empty(); });
  if (blocks.empty() || blocks.size() > kSegmentsMax) {
    return Status(Code::invalid_argument, "a ticket names 1 to 1024 blocks that are not empty");
  }
  if (const Result<fabric::Target> target = fabric::parse_target(address);
      target.ok() && !target->addresses.empty() && is_wildcard(target->addresses.front())) {
    return Status::with_detail(Code::invalid_argument,
                               "a ticket that names the wildcard " + std::string(address) +
                                   " leads whoever has it to itself: name the address under which "
                                   "peers reach this node");
  }
  TicketFields fields;
  fields.address = std::string(address);
  fields.incarnation = incarnation_;
  for (const Block& block : blocks) {
    if (Status stale = BufferAccess::present(block); !stale.ok()) return stale;
    fields.length += block.size();
  }
  std::vector<Entry> gone;
  const std::lock_guard lock(mutex_);
  expire_locked(now, gone);
  if (entries_.size() >= tickets_max_) {
    return Status(Code::resource_exhausted,
                  "NodeOptions::tickets_max tickets are not over yet: end those that nobody needs "
                  "(end_ticket), or give them shorter deadlines");
  }
  fields.id = next_id_++;
  fields.generation = random_.next();
  Result<Ticket> ticket = encode_ticket(fields);
  if (ticket.ok()) {
    entries_.emplace(fields.id, Entry{fields.generation, std::move(blocks), deadline});
    by_deadline_.emplace(deadline, fields.id);
  }
  return ticket;
}

// What is gone is dropped by the caller, outside the lock: blocks may go back to their pool.
void TicketTable::expire_locked(TimePoint now, std::vector<Entry>& gone) {
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= now) {
    const auto found = entries_.find(by_deadline_.begin()->second);
    by_deadline_.erase(by_deadline_.begin());
    gone.push_back(std::move(found->second));
    entries_.erase(found);
  }
}

void TicketTable::end(const TicketFields& ticket) {
  Entry gone;  // its blocks go outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(ticket.id);
  if (found == entries_.end() || found->second.generation != ticket.generation) return;
  gone = std::move(found->second);
  by_deadline_.erase({gone.deadline, ticket.id});
  entries_.erase(found);
}

Result<std::vector<Block>> TicketTable::find(const TicketFields& ticket, TimePoint now) {
  if (ticket.incarnation != incarnation_) {
    return Status(Code::stale, "the node that gave the ticket was restarted since");
  }
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(ticket.id);
  if (found == entries_.end() || found->second.generation != ticket.generation ||
      found->second.deadline <= now) {
    return Status(Code::stale, "the ticket is over: its deadline passed, or it was ended");
  }
  return found->second.blocks;
}

TimePoint TicketTable::sweep(TimePoint now) {
  std::vector<Entry> gone;
  const std::lock_guard lock(mutex_);
  expire_locked(now, gone);
  sweep_at_ = by_deadline_.empty() ? TimePoint::never() : by_deadline_.begin()->first;
  return sweep_at_;
}

bool TicketTable::wants_sweep(TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  if (deadline >= sweep_at_) return false;
  sweep_at_ = deadline;
  return true;
}

std::size_t TicketTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void TicketTable::clear() {
  std::unordered_map<std::uint64_t, Entry> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(entries_);
  by_deadline_.clear();
}

Operation<Result<Payload>> TicketService::handle(std::size_t, Call&,
                                                 std::span<const std::byte> request, Upload&,
                                                 Download& out) {
  using Answer = Operation<Result<Payload>>;
  Result<TicketFields> ticket =
      decode_ticket({reinterpret_cast<const char*>(request.data()), request.size()});
  if (!ticket.ok()) return Answer::ready(ticket.status());
  Result<std::vector<Block>> blocks = table_.find(*ticket, Poller::current()->now());
  if (!blocks.ok()) return Answer::ready(blocks.status());
  for (Block& block : *blocks) out.add(std::move(block));
  return Answer::ready(Payload());
}

}  // namespace pawl::rpc
