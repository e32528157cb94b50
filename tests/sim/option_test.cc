// SPDX-License-Identifier: Apache-2.0
// Options that can never work: refused before anything is done, by name, with value and bound.
#include <string>
#include <vector>

#include "sim/stack_fixture.h"

namespace pawl {
namespace {

template <class Options>
struct Wrong {
  void (*set)(Options&);
  std::string sentence;
};

void expect_refused(const Status& status, const std::string& sentence) {
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.ran(), Ran::no);
  EXPECT_EQ(status.what(), sentence);
}

TEST(NodeOptionTest, WhatCannotWorkIsInTheNodesStatus) {
  using O = NodeOptions;
  const std::vector<Wrong<O>> table = {
      {[](O& o) { o.pollers = 0; }, "NodeOptions::pollers is 0: it must be 1 to 1024"},
      {[](O& o) { o.pollers = 1025; }, "NodeOptions::pollers is 1025: it must be 1 to 1024"},
      {[](O& o) { o.handlers_per_turn = 0; },
       "NodeOptions::handlers_per_turn is 0: it must be at least 1"},
      {[](O& o) { o.handler_queue_max = 0; },
       "NodeOptions::handler_queue_max is 0: it must be at least 1"},
      {[](O& o) { o.receive_bytes = 10; },
       "NodeOptions::receive_bytes is 10: it must be 1024 to 1048576"},
      {[](O& o) { o.receive_bytes = 1023; },
       "NodeOptions::receive_bytes is 1023: it must be 1024 to 1048576"},
      {[](O& o) { o.receive_bytes = UINT32_MAX; },
       "NodeOptions::receive_bytes is 4294967295: it must be 1024 to 1048576"},
      {[](O& o) { o.receive_messages = 0; },
       "NodeOptions::receive_messages is 0: it must be 1 to 16384"},
      {[](O& o) { o.receive_messages = UINT32_MAX; },
       "NodeOptions::receive_messages is 4294967295: it must be 1 to 16384"},
      {[](O& o) { o.message_bytes_max = o.inline_bytes_max = 0; },
       "NodeOptions::message_bytes_max is 0: it must be at least 1024"},
      {[](O& o) { o.inline_bytes_max = o.message_bytes_max; },
       "NodeOptions::inline_bytes_max is 1048576: it must be at most half of message_bytes_max "
       "(524288), since what travels inline must fit into a message"},
      {[](O& o) { o.lease_grace = -1ms; },
       "NodeOptions::lease_grace is -1 ms: it must be at least 0 ms"},
      {[](O& o) { o.drain_grace = -1s; },
       "NodeOptions::drain_grace is -1000 ms: it must be at least 0 ms"},
      {[](O& o) { o.read_timeout = 10us; },
       "NodeOptions::read_timeout is 10000 ns: it must be at least 1 ms"},
      {[](O& o) { o.quarantine_timeout = o.read_timeout; },
       "NodeOptions::quarantine_timeout is 1000 ms: it must be longer than read_timeout (1000 ms), "
       "since a READ that does not complete takes its endpoint down first"},
  };
  testing::World world(1);
  for (std::size_t i = 0; i < table.size(); ++i) {
    SCOPED_TRACE(table[i].sentence);
    NodeOptions options;
    table[i].set(options);
    Node& node = world.add("node" + std::to_string(i), options);
    expect_refused(node.status(), table[i].sentence);
    testing::FunctionService service;
    expect_refused(node.serve("node" + std::to_string(i) + ":1", service).status(),
                   table[i].sentence);
  }
}

TEST(NodeOptionTest, TheLeastWorks) {
  testing::World world(1);
  NodeOptions options;
  options.handlers_per_turn = options.handler_queue_max = options.receive_messages = 1;
  options.receive_bytes = options.message_bytes_max = 1024;
  options.inline_bytes_max = 512;
  options.lease_grace = options.drain_grace = Duration{0};
  const Node& node = world.add("node", options);
  EXPECT_TRUE(node.status().ok()) << node.status().to_string();
}

using ChannelOptionTest = testing::StackFixture;

TEST_F(ChannelOptionTest, WhatCannotWorkFailsEveryCallUnsent) {
  using O = ChannelOptions;
  const std::vector<Wrong<O>> table = {
      {[](O& o) { o.default_deadline = Duration{0}; },
       "ChannelOptions::default_deadline is 0 ms: it must be longer than 0 ms"},
      {[](O& o) { o.reconnect_backoff_first = Duration{0}; },
       "ChannelOptions::reconnect_backoff_first is 0 ms: it must be longer than 0 ms"},
      {[](O& o) { o.reconnect_backoff_max = 9ms; },
       "ChannelOptions::reconnect_backoff_max is 9 ms: it must be at least "
       "reconnect_backoff_first (10 ms)"},
      {[](O& o) { o.connect_timeout = Duration{0}; },
       "ChannelOptions::connect_timeout is 0 ms: it must be longer than 0 ms"},
      {[](O& o) { o.liveness = Duration{0}; },
       "ChannelOptions::liveness is 0 ms: it must be at least 1 ms"},
      {[](O& o) { o.calls_max = 0; }, "ChannelOptions::calls_max is 0: it must be at least 1"},
  };
  start();
  constexpr Method kAny = make_method("test.Option/Any");
  const TimePoint begun = world_.now();
  for (const Wrong<O>& wrong : table) {
    SCOPED_TRACE(wrong.sentence);
    ChannelOptions options;
    wrong.set(options);
    const Channel channel = client_->channel("server:1", options);
    expect_refused(world_.run(*client_, channel.call(kAny, Payload())).status(), wrong.sentence);
    expect_refused(world_.run(*client_, channel.connect()), wrong.sentence);
  }
  EXPECT_EQ(world_.now(), begun);
  EXPECT_EQ(client_->stats().connects_failed + client_->stats().connections_opened, 0u);
}

}  // namespace
}  // namespace pawl
