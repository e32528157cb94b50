// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fuzz/input.h"
#include "pawl/channel.h"
#include "pawl/service.h"

/// One call each, for targets that include generated code: its name pawl::bulk is also that of a
/// namespace of the library.
namespace pawl::fuzz {

/// What a service answers to a request.
struct Served {
  bool connection_over = false;
  std::optional<Status> status;  ///< nothing if there was no response
};
Served serve_one(Service& service, const Method& method, Input request);

/// A response with `reply` as payload to the one call that `make` starts over its channel.
void call_one(const std::function<Started(const Channel&)>& make, Input reply);

}  // namespace pawl::fuzz
