// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "conformance/world.h"
#include "support/fabric_side.h"

namespace pawl::fabric::conformance {

using testing::Area;
using testing::pattern;
using testing::Side;

inline std::span<const std::byte> hello(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Both ends of a connection.
struct Link {
  EndpointId a;  ///< the end that connected
  EndpointId b;  ///< the end that accepted
};

/// Fabrics a, b and c of one implementation. After each case everything is closed and the counts
/// of all resources must be back at zero.
class Conformance : public ::testing::TestWithParam<Kind> {
 protected:
  Conformance();
  void TearDown() override;

  /// Turns and time, until `done` or `limit`; returns what `done` says at the end.
  bool run_until(const std::function<bool()>& done, Duration limit = 60s);
  /// Lets that much time pass: for things that must not happen.
  void run_for(Duration duration);

  /// Connects `from` to `to`. The groups are those of the options; each end's own.
  Link connect(Side& from, Side& to, const EndpointOptions& from_options = {.group = {1}},
               const EndpointOptions& to_options = {.group = {1}});
  /// Starts to listen at `side` (once) and returns the address.
  std::string address(Side& side);
  /// Waits for the next connect_request at `side` that was not handed out before.
  const Event* next_request(Side& side);
  TimePoint soon() const { return world_->now() + 60s; }

  /// The bytes at `base`, exposed to group 1 of `side`.
  static RemoteAddress expose(Side& side, Area& area, std::size_t offset, std::size_t bytes,
                              PeerGroup group = {1});

  std::size_t batch_ = 16;  ///< completions that a turn polls at most
  std::unique_ptr<World> world_;
  std::array<std::unique_ptr<Side>, kFabrics> sides_;
  Side& a_;
  Side& b_;
  Side& c_;

 private:
  void close_all();

  struct Listening {
    ListenerId id;
    std::string address;
    std::size_t requests_taken = 0;
  };
  std::map<Side*, Listening> listening_;
};

#define PAWL_CONFORMANCE(suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Fabric, suite,                                                    \
                           ::testing::ValuesIn(::pawl::fabric::conformance::kinds().begin(), \
                                               ::pawl::fabric::conformance::kinds().end()),  \
                           [](const auto& kind) { return std::string(kind.param.name); })

}  // namespace pawl::fabric::conformance
