// SPDX-License-Identifier: Apache-2.0
#include "bench_counts.h"

namespace pawl::tools {

namespace {

constexpr std::uint64_t SampleCounts::*kCounts[] = {
    &SampleCounts::served,          &SampleCounts::messages, &SampleCounts::transfers,
    &SampleCounts::reads,           &SampleCounts::confirms, &SampleCounts::binds,
    &SampleCounts::invalidates,     &SampleCounts::stale,    &SampleCounts::connections_lost,
    &SampleCounts::queue_pairs_lost};

}  // namespace

bench::CountReply reply_of(const NodeStats& stats) {
  bench::CountReply reply;
  reply.set_served_ok(stats.served_ok);
  reply.set_messages_sent(stats.messages_sent);
  reply.set_transfers_ok(stats.transfers_ok);
  reply.set_transfers_stale(stats.transfers_stale);
  reply.set_reads_posted(stats.reads_posted);
  reply.set_confirms_valid(stats.confirms_valid);
  reply.set_window_binds(stats.window_binds);
  reply.set_window_invalidates(stats.window_invalidates);
  reply.set_data_endpoints_lost(stats.data_endpoints_lost);
  return reply;
}

SampleCounts counts_of(const bench::CountReply& reply) {
  SampleCounts counts;
  counts.served = reply.served_ok();
  counts.messages = reply.messages_sent();
  counts.transfers = reply.transfers_ok();
  counts.reads = reply.reads_posted();
  counts.confirms = reply.confirms_valid();
  counts.binds = reply.window_binds();
  counts.invalidates = reply.window_invalidates();
  counts.stale = reply.transfers_stale();
  counts.queue_pairs_lost = reply.data_endpoints_lost();
  return counts;
}

SampleCounts counts_of(const NodeStats& stats) {
  SampleCounts counts;
  counts.messages = stats.messages_sent;
  counts.transfers = stats.transfers_ok;
  counts.reads = stats.reads_posted;
  counts.confirms = stats.confirms_valid;
  counts.binds = stats.window_binds;
  counts.invalidates = stats.window_invalidates;
  counts.stale = stats.transfers_stale;
  counts.connections_lost = stats.connections_lost;
  counts.queue_pairs_lost = stats.data_endpoints_lost;
  return counts;
}

SampleCounts sum_of(const SampleCounts& one, const SampleCounts& other) {
  SampleCounts counts;
  for (const auto member : kCounts) counts.*member = one.*member + other.*member;
  return counts;
}

SampleCounts between(const SampleCounts& before, const SampleCounts& after) {
  SampleCounts counts;
  for (const auto member : kCounts) counts.*member = after.*member - before.*member;
  counts.served -= 1;
  counts.messages -= 2;
  return counts;
}

}  // namespace pawl::tools
