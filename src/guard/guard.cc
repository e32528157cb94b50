// SPDX-License-Identifier: Apache-2.0
#include "pawl/guard.h"

#include <array>

namespace pawl {

namespace {

constexpr std::array kGuards = {Guard::verify,        Guard::verify_read, Guard::window,
                                Guard::window_verify, Guard::none,        Guard::disconnect,
                                Guard::deregister};

}  // namespace

std::string_view guard_name(Guard guard) {
  switch (guard) {
    case Guard::verify:
      return "verify";
    case Guard::verify_read:
      return "verify_read";
    case Guard::window:
      return "window";
    case Guard::window_verify:
      return "window_verify";
    case Guard::none:
      return "none";
    case Guard::disconnect:
      return "disconnect";
    case Guard::deregister:
      return "deregister";
  }
  return "unknown";
}

std::optional<Guard> guard_from_name(std::string_view name) {
  for (Guard guard : kGuards) {
    if (guard_name(guard) == name) return guard;
  }
  return std::nullopt;
}

}  // namespace pawl
