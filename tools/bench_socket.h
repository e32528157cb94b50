// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "pawl/result.h"

namespace pawl::tools {

/// A TCP connection as a program without a framework would use it. With `spin` it never sleeps in
/// the kernel; else it blocks in recv and send. Move-only.
class RawSocket {
 public:
  static Result<RawSocket> connect(const std::string& address, bool spin,
                                   std::uint32_t buffer_bytes);

  /// All of the parts, in one call of the system if it takes them.
  Status send(std::span<iovec> parts);
  Status send(std::span<const std::byte> bytes);
  /// At least one byte; 0 at the end of the stream.
  Result<std::size_t> receive_some(std::span<std::byte> out);
  /// All of `out`; unavailable at the end of the stream before that.
  Status receive(std::span<std::byte> out);

 private:
  friend class RawListener;
  RawSocket(UniqueFd fd, bool spin) : fd_(std::move(fd)), spin_(spin) {}

  UniqueFd fd_;
  bool spin_;
};

/// Listens on loopback, at a port that the system chose.
class RawListener {
 public:
  static Result<RawListener> listen(std::uint32_t buffer_bytes);
  [[nodiscard]] std::string address() const;
  Result<RawSocket> accept(bool spin);

 private:
  explicit RawListener(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace pawl::tools
