// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace pawl::testing {

/// A network of its own for this thread and the threads that it starts: interface lo, and what the
/// test adds with `ip`. Sockets stay in the network of the thread that made them. With a second one
/// there are two machines; they end in the other order.
class OwnNetwork {
 public:
  OwnNetwork();
  ~OwnNetwork();
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

  /// Why there is none, for GTEST_SKIP; nullptr if there is.
  [[nodiscard]] const char* missing() const { return missing_; }
  /// This thread goes there again, from another one.
  void enter() const;
  /// For `ip link set … netns`.
  [[nodiscard]] std::string path() const;
  /// Runs `ip` with these arguments, in the network of this thread. False: it failed, and said why
  /// on standard error.
  [[nodiscard]] bool ip(const std::string& arguments) const;
  /// Sets net.ipv6.`name`, in the network of this thread. False: it cannot be written.
  [[nodiscard]] bool set_ipv6(const std::string& name, int value) const;

 private:
  const char* missing_ = nullptr;
  UniqueFd before_;
  UniqueFd own_;
};

}  // namespace pawl::testing
