// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "demo_board.h"
#include "demo_corpus.h"
#include "fabric/random_delay.h"
#include "pawl/time.h"

// Deadlines of calls, and how READs are held beyond them.
namespace pawl::tools {

/// Files above this are few, slow and filled on a thread of their own; those below go first.
inline constexpr std::size_t kLargeFileBytes = std::size_t{256} << 10;

/// Says in the settings what files there are.
void set_files(RowSettings& settings, const Corpus& corpus);

/// How long a call for a file of this size may take.
Duration deadline_of(const RowSettings& settings, std::size_t bytes);

/// The deadline of small calls with which a call for a file of this size, that took so long, would
/// have ended just in time.
Duration small_deadline_for(const RowSettings& settings, std::size_t bytes, Duration took);

/// READs are held for up to this many deadlines of the call that they belong to.
inline constexpr int kHoldDeadlines = 5;

/// How one READ is held that belongs to a file of this size. The longer the file, the more READs it
/// takes and the more rarely each is held, so that calls of every size have late READs and most of
/// them end in time.
fabric::RandomDelay hold_of(const RowSettings& settings, std::size_t bytes);

}  // namespace pawl::tools
