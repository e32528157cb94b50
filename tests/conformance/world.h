// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>

#include "fabric/fabric.h"
#include "pawl/time.h"

namespace pawl::fabric::conformance {

inline constexpr std::size_t kFabrics = 3;

/// A few fabrics of one implementation that can reach each other, and the time they live in.
class World {
 public:
  virtual ~World() = default;

  virtual Fabric& fabric(std::size_t index) = 0;
  /// An address for `listen` at this fabric; the system chooses the rest.
  virtual std::string any_address(std::size_t index) = 0;
  /// An address at which nobody listens: connects are refused.
  virtual std::string dead_address() = 0;
  [[nodiscard]] virtual const Clock& clock() const = 0;
  [[nodiscard]] TimePoint now() const { return clock().now(); }
  /// Called when no fabric has anything to do: returns at the next thing that may happen.
  virtual void wait(TimePoint until) = 0;
  /// Nothing sent from `from` reaches `to`; false where that cannot be done.
  virtual bool block(std::size_t from, std::size_t to) {
    static_cast<void>(from), static_cast<void>(to);
    return false;
  }
  virtual bool unblock(std::size_t from, std::size_t to) {
    static_cast<void>(from), static_cast<void>(to);
    return false;
  }
  /// The host of this fabric answers nothing from now on; false where that cannot be done.
  virtual bool vanish(std::size_t index) {
    static_cast<void>(index);
    return false;
  }
  /// True if time moves only in `wait`.
  [[nodiscard]] virtual bool virtual_time() const = 0;
};

/// An implementation under test.
struct Kind {
  const char* name;
  std::unique_ptr<World> (*make)();
  /// Why it cannot run on this machine; nullptr if it can.
  const char* (*missing)() = [] { return static_cast<const char*>(nullptr); };
};
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

/// All that are built in; see worlds.cc.
std::span<const Kind> kinds();

}  // namespace pawl::fabric::conformance
