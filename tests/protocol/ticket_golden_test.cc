// SPDX-License-Identifier: Apache-2.0
// The bytes of a ticket (docs/wire.md). They lie in other people's messages: a change here needs a
// new version number in front.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "protocol/wire_bytes.h"
#include "rpc/ticket_table.h"

namespace pawl::rpc {
namespace {

using test::Bytes;
using test::from_hex;
using test::to_hex;

constexpr const char* kHex =
    "01 0d"
    "1112131415161718 2122232425262728 3132333435363738 4142434445464748"
    "31302e302e302e313a37303030";

std::string text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(TicketGolden, EncodesToTheseBytes) {
  TicketFields fields;
  fields.address = "10.0.0.1:7000";
  fields.incarnation = 0x1817161514131211;
  fields.id = 0x2827262524232221;
  fields.generation = 0x3837363534333231;
  fields.length = 0x4847464544434241;
  const Result<Ticket> ticket = encode_ticket(fields);
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  const std::string_view bytes = ticket->bytes();
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  EXPECT_EQ(to_hex(Bytes(data, data + bytes.size())), to_hex(from_hex(kHex)));
}

TEST(TicketGolden, DecodesToTheseFields) {
  const Result<TicketFields> fields = decode_ticket(text(from_hex(kHex)));
  ASSERT_TRUE(fields.ok()) << fields.status().to_string();
  EXPECT_EQ(fields->address, "10.0.0.1:7000");
  EXPECT_EQ(fields->incarnation, 0x1817161514131211u);
  EXPECT_EQ(fields->id, 0x2827262524232221u);
  EXPECT_EQ(fields->generation, 0x3837363534333231u);
  EXPECT_EQ(fields->length, 0x4847464544434241u);
}

TEST(TicketGolden, EveryCutAndEveryOtherVersionIsRefused) {
  const std::string ticket = text(from_hex(kHex));
  for (std::size_t bytes = 0; bytes < ticket.size(); ++bytes) {
    EXPECT_EQ(decode_ticket(std::string_view(ticket).substr(0, bytes)).status().code(),
              Code::invalid_argument)
        << bytes;
  }
  EXPECT_EQ(decode_ticket(ticket + "x").status().code(), Code::invalid_argument);
  for (const char version : {'\0', '\2', '\xff'}) {
    std::string other = ticket;
    other[0] = version;
    EXPECT_EQ(decode_ticket(other).status().code(), Code::unimplemented);
  }
}

TEST(TicketGolden, TheLongestAddressMakes256Bytes) {
  TicketFields fields;
  fields.address = std::string(222, 'a');
  const Result<Ticket> ticket = encode_ticket(fields);
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  EXPECT_EQ(ticket->bytes().size(), 256u);
  EXPECT_TRUE(decode_ticket(ticket->bytes()).ok());
  fields.address += "a";
  EXPECT_EQ(encode_ticket(fields).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace pawl::rpc
