// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench.pawl.h"
#include "bench_board.h"
#include "pawl/stats.h"

namespace pawl::tools {

/// What a server has counted since its start, for Bench::Count and Storm::Count.
bench::CountReply reply_of(const NodeStats& stats);

/// Of one end since its start: of the server by its reply, of the client by its own counters.
SampleCounts counts_of(const bench::CountReply& reply);
SampleCounts counts_of(const NodeStats& stats);

/// Of both ends.
SampleCounts sum_of(const SampleCounts& one, const SampleCounts& other);

/// What the calls between two counts took. Of the counting itself there are, between the two, one
/// call served and two messages: the first answer and the second request.
SampleCounts between(const SampleCounts& before, const SampleCounts& after);

}  // namespace pawl::tools
