// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "fabric/work.h"

namespace pawl::fabric {

/// The rule for unsignalled work, for fabrics that know when each request is done: a request that
/// is not signalled completes together with, and before, the next signalled one of its endpoint.
/// One object per endpoint; it holds a completion back until its group (a run of unsignalled
/// requests and the signalled one that ends it) is done. Groups do not wait for each other.
class SignalOrder {
 public:
  /// In the order of posts; the result names the request in `done`: 0, 1, 2, … Silent requests that
  /// would fill half of a send queue of `depth` are signalled here.
  std::uint64_t add(bool signalled, std::uint32_t depth) {
    silent_ = signalled ? 0 : silent_ + 1;
    if (silent_ > depth / 2) {
      signalled = true;
      silent_ = 0;
    }
    entries_.push_back({.signalled = signalled});
    return first_ + entries_.size() - 1;
  }

  /// The request is done; calls emit(const Completion&) for each completion that may go out now.
  template <class Emit>
  void done(std::uint64_t ticket, const Completion& completion, Emit&& emit) {
    std::size_t at = ticket - first_;
    entries_[at].completion = completion;
    entries_[at].done = true;
    std::size_t begin = at;
    while (begin > 0 && !entries_[begin - 1].signalled) --begin;
    std::size_t end = at;
    while (end < entries_.size() && entries_[end].done && !entries_[end].signalled) ++end;
    if (end == entries_.size() || !entries_[end].done) return;
    for (std::size_t i = begin; i <= end; ++i) {
      if (!entries_[i].done) return;
    }
    for (std::size_t i = begin; i <= end; ++i) emit_once(entries_[i], emit);
    drop_emitted();
  }

  /// Everything that is done goes out: the endpoint has ended and no signalled request follows.
  template <class Emit>
  void flush(Emit&& emit) {
    for (Entry& entry : entries_) {
      if (entry.done) emit_once(entry, emit);
    }
    drop_emitted();
  }

  /// Requests that are done and held back.
  [[nodiscard]] std::size_t waiting() const {
    std::size_t count = 0;
    for (const Entry& entry : entries_) count += entry.done && !entry.emitted ? 1 : 0;
    return count;
  }

 private:
  struct Entry {
    bool signalled = true;
    bool done = false;
    bool emitted = false;
    Completion completion;
  };

  template <class Emit>
  static void emit_once(Entry& entry, Emit&& emit) {
    if (entry.emitted) return;
    entry.emitted = true;
    emit(static_cast<const Completion&>(entry.completion));
  }
  void drop_emitted() {
    while (!entries_.empty() && entries_.front().emitted) {
      entries_.pop_front();
      ++first_;
    }
  }

  std::uint64_t first_ = 0;
  std::uint32_t silent_ = 0;  // the last ones that were added
  std::deque<Entry> entries_;
};

}  // namespace pawl::fabric
