// SPDX-License-Identifier: Apache-2.0
#include "rpc/check_options.h"

#include <string>

#include "rpc/handshake.h"

namespace pawl::rpc {

namespace {

constexpr std::uint32_t kPollersMax = 1024;
constexpr std::uint32_t kReceiveMessagesMax = 16384;   // what devices hold in a receive queue
constexpr std::uint32_t kReceiveBytesMax = 1u << 20;   // a connection has receive_messages of them
constexpr std::uint32_t kMessageBytesMaxLeast = 1024;  // room for a call's fixed part
constexpr Duration kTick = std::chrono::milliseconds(1);  // what timers of connections are made for

std::string text(std::uint32_t number) { return std::to_string(number); }
std::string text(Duration time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time);
  return ms == time ? std::to_string(ms.count()) + " ms" : std::to_string(time.count()) + " ns";
}

/// Keeps the first complaint.
class Checker {
 public:
  explicit Checker(const char* options) : options_(options) {}

  template <class T>
  void require(bool good, const char* option, T value, const std::string& bound) {
    if (good || !status_.ok()) return;
    status_ =
        Status::with_detail(Code::invalid_argument, options_ + "::" + option + " is " +
                                                        text(value) + ": it must be " + bound);
  }
  void in_range(const char* option, std::uint32_t value, std::uint32_t least, std::uint32_t most) {
    require(least <= value && value <= most, option, value, text(least) + " to " + text(most));
  }
  template <class T>
  void at_least(const char* option, T value, T least) {
    require(value >= least, option, value, "at least " + text(least));
  }
  void positive(const char* option, Duration value) {
    require(value > Duration{0}, option, value, "longer than 0 ms");
  }
  Status status() && { return std::move(status_); }

 private:
  const std::string options_;
  Status status_;
};

}  // namespace

Status misuse_of(const NodeOptions& o) {
  Checker check("NodeOptions");
  check.in_range("pollers", o.pollers, 1, kPollersMax);
  check.at_least("handlers_per_turn", o.handlers_per_turn, 1u);
  check.at_least("handler_queue_max", o.handler_queue_max, 1u);
  check.in_range("receive_bytes", o.receive_bytes, kReceiveBytesMin, kReceiveBytesMax);
  check.in_range("receive_messages", o.receive_messages, 1, kReceiveMessagesMax);
  check.at_least("message_bytes_max", o.message_bytes_max, kMessageBytesMaxLeast);
  check.require(o.inline_bytes_max <= o.message_bytes_max / 2, "inline_bytes_max",
                o.inline_bytes_max,
                "at most half of message_bytes_max (" + text(o.message_bytes_max / 2) +
                    "), since what travels inline must fit into a message");
  check.at_least("lease_grace", o.lease_grace, Duration{0});
  check.at_least("drain_grace", o.drain_grace, Duration{0});
  check.at_least("read_timeout", o.read_timeout, kTick);
  check.require(o.quarantine_timeout > o.read_timeout, "quarantine_timeout", o.quarantine_timeout,
                "longer than read_timeout (" + text(o.read_timeout) +
                    "), since a READ that does not complete takes its endpoint down first");
  return std::move(check).status();
}

Status misuse_of(const ChannelOptions& o) {
  Checker check("ChannelOptions");
  check.positive("default_deadline", o.default_deadline);
  check.positive("reconnect_backoff_first", o.reconnect_backoff_first);
  check.require(o.reconnect_backoff_max >= o.reconnect_backoff_first, "reconnect_backoff_max",
                o.reconnect_backoff_max,
                "at least reconnect_backoff_first (" + text(o.reconnect_backoff_first) + ")");
  check.positive("connect_timeout", o.connect_timeout);
  check.at_least("liveness", o.liveness, kTick);
  check.at_least("calls_max", o.calls_max, 1u);
  return std::move(check).status();
}

}  // namespace pawl::rpc
