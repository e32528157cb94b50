// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "pawl/result.h"
#include "pawl/service.h"

namespace pawl::rpc {

/// The methods that the peers of some connections may call. Built once, then read by every poller.
class Registry {
 public:
  struct Entry {
    Service* service = nullptr;
    std::size_t index = 0;
    Method method;
  };

  /// already_exists names the two methods whose hashes are equal.
  static Result<std::shared_ptr<const Registry>> make(std::span<Service* const> services);

  [[nodiscard]] const Entry* find(std::uint64_t hash) const {
    const auto found = methods_.find(hash);
    return found == methods_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<std::uint64_t, Entry> methods_;
};

}  // namespace pawl::rpc
