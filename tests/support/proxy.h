// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace pawl::testing {

/// A way between two ends: takes connections on a port of 127.0.0.1, and passes their bytes on
/// over connections of its own, on a thread of its own.
class Proxy {
 public:
  /// Where connection n (from 0) goes: "127.0.0.1:port".
  using Route = std::function<std::string(std::size_t n)>;

  explicit Proxy(Route route);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  /// Connections so far.
  [[nodiscard]] std::size_t connections() const { return connections_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// From now on nothing more passes in a direction of a connection in which, since it was
  /// made, more than so many bytes came.
  void swallow_beyond(std::size_t bytes) { limit_ = bytes; }

 private:
  struct Direction {
    int from;
    int to;
    std::size_t passed;
    bool over;
  };
  struct Link {
    UniqueFd client;
    UniqueFd server;
    Direction up;
    Direction down;
  };
  void run();
  void accept_one();
  void pass(Direction& way);

  Route route_;
  UniqueFd listener_;
  UniqueFd stop_;
  std::string address_;
  std::atomic<std::size_t> connections_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> limit_{SIZE_MAX};
  std::vector<std::unique_ptr<Link>> links_;
  std::thread thread_;
};

}  // namespace pawl::testing
