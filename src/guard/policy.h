// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "pawl/guard.h"

namespace pawl::guard {

/// What a guard asks of the two ends. The owner's and the reader's protocol code is one for all
/// guards and consults this; a guard that needs steps of its own (window) adds them where
/// `settles_later` makes the owner wait for their proof.
struct Policy {
  /// Reader: after the READs completed, have the owner confirm before the bytes are used.
  bool reader_confirms = false;
  /// Reader: an abandoned call stops posting READs, and its bytes are discarded. False for the
  /// baselines, where nobody tells the data mover that the call is over.
  bool reader_heeds_cancel = true;
  /// Owner: the end of the lease is not enough; the memory is held until `Lease::settle`.
  bool settles_later = false;
  /// Owner: before a lease that was not released is taken back, the connection goes to ERR.
  bool breaks_connection = false;
  /// The keys of the descriptor are windows, bound in the chain of the message that carries them.
  bool binds_windows = false;
};

/// A lease under a window guard has at most so many segments: each is a bind.
inline constexpr std::size_t kWindowSegmentsMax = 16;

constexpr Policy policy_of(Guard guard) {
  switch (guard) {
    case Guard::verify:
      return Policy{.reader_confirms = true};
    case Guard::verify_read:
      return Policy{.reader_confirms = true};
    case Guard::window:
      return Policy{.settles_later = true, .binds_windows = true};
    case Guard::window_verify:
      return Policy{.reader_confirms = true, .settles_later = true, .binds_windows = true};
    case Guard::none:
    case Guard::deregister:
      return Policy{.reader_heeds_cancel = false};
    case Guard::disconnect:
      return Policy{.reader_heeds_cancel = false, .breaks_connection = true};
  }
  return Policy{};
}

}  // namespace pawl::guard
