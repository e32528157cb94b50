// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a ticket, and what a node finds by it. With -DPAWL_FUZZ_CONTROL the decoder
// under test is a wrong one, which the fuzzer must find.
#include <string>

#include "base/bytes.h"
#include "fuzz/input.h"
#include "rpc/ticket_table.h"

namespace pawl::fuzz {
namespace {

constexpr std::uint64_t kIncarnation = 0x1817161514131211;
constexpr std::uint64_t kSeed = 7;

#ifdef PAWL_FUZZ_CONTROL
/// Does not look whether anything is left behind the address.
Result<rpc::TicketFields> decode(std::string_view bytes) {
  if (bytes.size() < 2) return rpc::decode_ticket(bytes);
  const std::size_t whole = 34 + static_cast<unsigned char>(bytes[1]);
  return rpc::decode_ticket(bytes.substr(0, whole));
}
#else
Result<rpc::TicketFields> decode(std::string_view bytes) { return rpc::decode_ticket(bytes); }
#endif

PoolOptions small_pool() {
  PoolOptions options;
  options.slab_bytes = options.bytes_at_start = std::size_t{1} << 20;
  options.leases_max = 16;
  options.grow_inline = true;
  return options;
}

Block some_block(Pool& pool) {
  Result<Buffer> buffer = pool.try_acquire(4096);
  require(buffer.ok(), "a pool of the target gives a small buffer");
  return std::move(*buffer).freeze();
}

/// A table with one ticket: no other bytes than its own open it or end it.
void in_a_table(const rpc::TicketFields& fields) {
  static Pool pool(small_pool());
  static const Block kBlock = some_block(pool);
  const TimePoint now{1'000'000'000};
  const TimePoint deadline = now + std::chrono::seconds(1);
  rpc::TicketTable table(kIncarnation, kSeed, 16);
  const Result<Ticket> issued = table.issue({kBlock}, "peer:1", now, deadline);
  require(issued.ok(), "a ticket for a block and an address is issued");
  const Result<rpc::TicketFields> own = rpc::decode_ticket(issued->bytes());
  require(own.ok(), "a ticket that was issued is one");
  const bool same = fields.incarnation == own->incarnation && fields.id == own->id &&
                    fields.generation == own->generation;
  require(table.find(fields, now).ok() == same, "a ticket is found by all of its name only");
  require(!table.find(fields, deadline).ok(), "a ticket is over at its deadline");
  table.end(fields);
  const bool ended = fields.id == own->id && fields.generation == own->generation;
  require(table.find(*own, now).ok() == !ended, "a ticket is ended by its own name only");
}

}  // namespace

void tickets(Input input) {
  const Exact exact(input);
  const Result<rpc::TicketFields> got = decode(exact.text());
  if (!got.ok()) {
    const Code code = got.status().code();
    require(code == Code::invalid_argument || code == Code::unimplemented,
            "a bad ticket is refused with invalid_argument or unimplemented");
    require(!got.status().what().empty(), "a bad ticket is told why");
    return;
  }
  const Result<Ticket> again = rpc::encode_ticket(*got);
  require(again.ok(), "what was decoded can be encoded");
  require(again->bytes() == exact.text(), "a ticket encodes to the bytes that it came from");
  in_a_table(*got);
}

}  // namespace pawl::fuzz
