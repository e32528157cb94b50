// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "support/host_kind.h"

namespace pawl::testing {

/// Host memory whose copies out are interrupted: half of the bytes, `meanwhile`, the other half.
class InterruptedMemory final : public HostKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "interrupted"; }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    const std::size_t half = to.size() / 2;
    HostKind::copy_out(to.first(half), from);
    if (meanwhile) meanwhile();
    HostKind::copy_out(to.subspan(half), from + half);
  }

  std::function<void()> meanwhile;
};

}  // namespace pawl::testing
