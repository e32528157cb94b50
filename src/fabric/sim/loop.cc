// SPDX-License-Identifier: Apache-2.0
#include "fabric/sim/loop.h"

#include <algorithm>

#include "base/check.h"

namespace pawl::fabric {

std::uint64_t SimLoop::add(Turn turn, NextDeadline next_deadline) {
  participants_.push_back({next_number_, std::move(turn), std::move(next_deadline)});
  return next_number_++;
}

void SimLoop::remove(std::uint64_t participant) {
  std::erase_if(participants_, [&](const Participant& p) { return p.number == participant; });
}

bool SimLoop::round() {
  // By number, since a turn may add or remove participants.
  std::vector<std::uint64_t> order;
  order.reserve(participants_.size());
  for (const Participant& participant : participants_) order.push_back(participant.number);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  bool progress = false;
  for (const std::uint64_t number : order) {
    const auto found = std::find_if(participants_.begin(), participants_.end(),
                                    [&](const Participant& p) { return p.number == number; });
    if (found == participants_.end()) continue;
    const Turn turn = found->turn;
    progress = turn() || progress;
  }
  return progress;
}

TimePoint SimLoop::next_time() const {
  TimePoint next = network_.next_event_time();
  for (const Participant& p : participants_) next = std::min(next, p.next_deadline());
  return next;
}

void SimLoop::settle() {
  run_until([] { return false; }, network_.now());
}

bool SimLoop::run_until(const std::function<bool()>& done, TimePoint limit) {
  std::uint64_t rounds = 0;
  for (;;) {
    const bool progress = round();
    if (done()) return true;
    if (progress) {
      PAWL_CHECK(++rounds < kRoundsPerInstantMax,
                 "sim: the nodes make progress for ever at one instant");
      continue;
    }
    const TimePoint next = next_time();
    if (next > limit) {
      if (limit != TimePoint::never()) network_.run_until(limit);
      return false;
    }
    if (next > network_.now()) {
      rounds = 0;
      network_.run_until(next);
    } else if (network_.next_event_time() <= network_.now()) {
      network_.run_until(network_.now());
    } else {
      PAWL_CHECK(++rounds < kRoundsPerInstantMax,
                 "sim: a deadline is due and the turns do nothing about it");
    }
  }
}

void SimLoop::run_for(Duration duration) {
  run_until([] { return false; }, network_.now() + duration);
}

}  // namespace pawl::fabric
