// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/fabric.h"
#include "fabric/tcp/tcp_fabric.h"
#include "fabric/tcp/wire.h"
#include "support/plain_memory.h"

namespace pawl::fabric::tcp {

/// Registered memory of a fabric.
struct Memory {
  std::vector<std::byte> bytes;
  MemoryHandle handle;

  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t length) {
    return {.address = bytes.data() + offset,
            .length = static_cast<std::uint32_t>(length),
            .memory = handle};
  }
};

/// A tcp fabric and what it returned.
struct Node {
  explicit Node(const TcpOptions& options = {}) : fabric(make_tcp_fabric(options).value()) {}

  std::unique_ptr<Memory> memory(std::size_t bytes, MemoryUse use = MemoryUse::bulk);
  std::size_t post(EndpointId endpoint, const WorkRequest& request);
  void receive(EndpointId endpoint, std::uint64_t id, const LocalSegment& to);
  void send(EndpointId endpoint, std::uint64_t id, const LocalSegment& from);
  void read(EndpointId endpoint, std::uint64_t id, const LocalSegment& to, RemoteAddress from);
  /// One turn of a poller at this time.
  bool turn(TimePoint now);
  [[nodiscard]] const Event* event(EventKind kind, EndpointId endpoint = {}) const;
  [[nodiscard]] std::size_t count(EventKind kind) const;
  [[nodiscard]] bool done(std::uint64_t id) const { return completions.contains(id); }
  /// The status by name; "none" if it has not completed.
  [[nodiscard]] std::string status(std::uint64_t id) const;

  pawl::testing::PlainMemory kind;
  std::unique_ptr<Fabric> fabric;
  std::map<std::uint64_t, Completion> completions;
  std::vector<std::uint64_t> order;  // of completions
  std::vector<Event> events;
  std::function<void(const Completion&)> on_completion;
};

/// A socket that speaks whatever a test wants. Never blocks; gives up its socket when dropped.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address);

  /// Puts bytes behind those that wait to be sent.
  void say(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void say_greeting(GreetingKind kind = GreetingKind::connect, std::uint16_t hello_bytes = 0);
  void say_frame(const FrameHeader& header, std::size_t zero_body = 0);
  void say_read(std::uint64_t id, std::uint64_t key, std::uint64_t address, std::uint32_t length);
  /// Sends at most that many bytes of what waits, and reads what is there unless told not to.
  void turn(std::size_t send_max = SIZE_MAX);
  void stop_reading() { reading_ = false; }
  void start_reading() { reading_ = true; }
  void reset();  ///< the process died: the peer gets RST
  void finish_sending();

  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] const std::vector<std::byte>& heard() const { return heard_; }
  [[nodiscard]] bool all_said() const { return said_ == out_.size(); }
  /// The frame at `offset` of what was heard, behind the greeting.
  [[nodiscard]] bool frame(std::size_t offset, FrameHeader& out) const;

 private:
  UniqueFd fd_;
  bool reading_ = true;
  bool ended_ = false;
  std::vector<std::byte> out_;
  std::size_t said_ = 0;
  std::vector<std::byte> heard_;
};

/// Two fabrics, polled by the test, in real time that can be moved on.
class TcpTest : public ::testing::Test {
 protected:
  struct Link {
    EndpointId a, b;
  };

  [[nodiscard]] TimePoint now() const { return clock_.now() + ahead_; }
  void advance(Duration d) { ahead_ += d; }
  /// Turns of both until `done`; false after a generous time.
  bool run_until(const std::function<bool()>& done, Duration limit = 60s);
  void run_turns(int count);
  std::string listen(std::string_view address = "127.0.0.1:0");
  Link connect(const EndpointOptions& a_options = {.group = {1}},
               const EndpointOptions& b_options = {.group = {1}});
  /// A raw peer whose greeting b has accepted, with the endpoint at b.
  std::unique_ptr<RawPeer> raw_link(EndpointId& endpoint,
                                    const EndpointOptions& options = {.group = {1}});
  /// Closes everything and checks that nothing is left.
  void close_all();
  void TearDown() override { close_all(); }

  Node a_;
  Node b_;
  std::vector<RawPeer*> raw_;

 private:
  SteadyClock clock_;
  Duration ahead_{0};
  std::string address_;
};

}  // namespace pawl::fabric::tcp
