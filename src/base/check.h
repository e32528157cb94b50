// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pawl/detail/check.h"

/// An impossible state ends the process, in release builds too. Never for what a peer sent, and
/// never for running out of something: those are answered with a Status.
#define PAWL_CHECK(condition, sentence)                                         \
  do {                                                                          \
    if (!(condition)) [[unlikely]]                                              \
      ::pawl::detail::check_failed(#condition, (sentence), __FILE__, __LINE__); \
  } while (false)
