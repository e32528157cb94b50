// SPDX-License-Identifier: Apache-2.0
// Bounds that users meet: addresses that tickets name, connections of a server, bytes of a receive.
#include <string>
#include <vector>

#include "rpc/ticket_table.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.Limits/Echo");
constexpr std::size_t kTicketChannelsMax = 256;

class LimitsTest : public testing::StackFixture {
 protected:
  LimitsTest() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  }
  /// Of which hundreds of connections cost little.
  static NodeOptions small_node() {
    NodeOptions options;
    options.receive_bytes = 1024;
    options.receive_messages = 4;
    return options;
  }
  static CallOptions impatient() {
    CallOptions options;
    options.wait_for_connection = false;
    return options;
  }
  static Ticket ticket_at(std::string address) {
    rpc::TicketFields fields;
    fields.address = std::move(address);
    fields.incarnation = fields.id = fields.generation = 1;
    return *rpc::encode_ticket(fields);
  }
  Status pull(const Ticket& ticket) {
    return world_.run(*client_, client_->pull(ticket, into(client_->pool()), impatient())).status();
  }
  Outcome<Payload> echo(Node& node, const Channel& channel, const CallOptions& options = {}) {
    return world_.run(node, channel.call(kEcho, Payload::of("x"), options));
  }
};

TEST_F(LimitsTest, TicketsOfManyNodesThatDoNotExistFailOneByOne) {
  start();
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(pull(ticket_at("n" + std::to_string(i) + ":1")).code(), Code::unavailable);
  }
  expect_quiet();
}

TEST_F(LimitsTest, TheLeastRecentlyUsedOf256TicketAddressesIsForgotten) {
  start(small_node(), small_node());
  std::vector<Server> servers;
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i <= kTicketChannelsMax; ++i) {
    const std::string address = "server:" + std::to_string(i + 2);
    servers.push_back(*server_->serve(address));
    tickets.push_back(ticket_at(address));
  }
  const auto pull_at = [&](std::size_t i) { EXPECT_EQ(pull(tickets[i]).code(), Code::stale); };
  for (std::size_t i = 0; i < kTicketChannelsMax; ++i) pull_at(i);
  pull_at(0);
  EXPECT_EQ(client_->stats().connections_opened, kTicketChannelsMax);
  EXPECT_EQ(client_->stats().connections_live, kTicketChannelsMax);
  pull_at(kTicketChannelsMax);  // in place of 1
  pull_at(0);
  world_.run_for(1s);
  EXPECT_EQ(client_->stats().connections_opened, kTicketChannelsMax + 1);
  EXPECT_EQ(client_->stats().connections_live, kTicketChannelsMax);
  pull_at(1);  // in place of 2
  pull_at(3);
  EXPECT_EQ(client_->stats().connections_opened, kTicketChannelsMax + 2);
}

TEST_F(LimitsTest, AConnectionBeyondConnectionsMaxIsRefusedByNameAndTheOthersGoOn) {
  NodeOptions two;
  two.connections_max = 2;
  start(two);
  Node& second = world_.add("second");
  Node& third = world_.add("third");
  Channel of_second = second.channel("server:1");
  const Channel of_third = third.channel("server:1");
  EXPECT_TRUE(echo(*client_, channel_).ok());
  EXPECT_TRUE(echo(second, of_second).ok());
  const Outcome<Payload> refused = echo(third, of_third, impatient());
  EXPECT_EQ(refused.status().code(), Code::resource_exhausted) << refused.to_string();
  EXPECT_NE(refused.status().what().find("connections_max"), std::string_view::npos)
      << refused.to_string();
  EXPECT_EQ(refused.ran(), Ran::no);
  EXPECT_TRUE(echo(*client_, channel_).ok());
  EXPECT_TRUE(echo(second, of_second).ok());
  EXPECT_EQ(server_->stats().connections_opened, 2u);
  of_second = Channel();
  EXPECT_TRUE(echo(third, of_third).ok()) << "a place came free, and the next try finds it";
}

TEST_F(LimitsTest, ReceivesAreNoLongerThanAMessageOfTheFabric) {
  NodeOptions large;
  large.receive_bytes = 128 << 10;  // the simulated network's messages have at most 64 KiB
  start(large, large);
  const std::vector<std::byte> bytes(100'000, std::byte{7});
  const Outcome<Payload> outcome =
      world_.run(*client_, channel_.call(kEcho, Payload(bytes), within(5s)));
  ASSERT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_EQ(outcome->size(), bytes.size());
  EXPECT_EQ(client_->stats().connections_lost, 0u);
}

}  // namespace
}  // namespace pawl
