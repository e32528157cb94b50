// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "pawl/call.h"

namespace pawl {

namespace {

// Nearest microsecond.
std::string micros(Duration d) { return std::to_string((d.count() + 500) / 1000); }

/// "(queue 3, wire 60, read 51)": the steps that happened.
class Steps {
 public:
  void add(std::string_view name, Duration d) {
    if (d.count() <= 0) return;
    begin();
    text_ += name;
    text_ += ' ';
    text_ += micros(d);
  }
  void add_attempts(std::uint16_t attempts) {
    if (attempts <= 1) return;
    begin();
    text_ += std::to_string(attempts) + " attempts";
  }
  [[nodiscard]] std::string text() const { return text_.empty() ? text_ : text_ + ")"; }

 private:
  void begin() { text_ += text_.empty() ? " (" : ", "; }

  std::string text_;
};

}  // namespace

std::string describe_call(const Status& status, const CallInfo& info) {
  Steps steps;
  steps.add("queue", info.queue);
  steps.add("wire", info.wire);
  steps.add("read", info.read);
  steps.add("confirm", info.confirm);
  steps.add_attempts(info.attempts);

  std::string line(code_name(status.code()));
  line += ' ' + micros(info.total) + " us" + steps.text();
  const std::string_view fabric = info.fabric;
  if (!fabric.empty()) {  // empty: it never got so far
    line += ' ';
    if (info.bulk) line.append(guard_name(info.guard)).append("/");
    line += fabric;
    // Behind a failure the error's own sentence stands alone.
    const std::string_view reason = info.fabric_reason;
    if (status.ok() && !reason.empty()) line.append(": ").append(reason);
  }
  if (status.ok()) return line;
  if (!status.what().empty()) line.append(": ").append(status.what());
  return line.append(" (ran: ").append(ran_name(status.ran())).append(")");
}

}  // namespace pawl
