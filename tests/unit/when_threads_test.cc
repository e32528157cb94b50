// SPDX-License-Identifier: Apache-2.0
// when_all and when_any off a poller: what they wait for is completed by other threads, while they
// begin, and while they are dropped.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/completer.h"
#include "pawl/when.h"

namespace pawl {
namespace {

constexpr int kRounds = 2'000;
using Value = Result<int>;

/// Two threads that complete one Completer each, at the same time as each other and as the body of
/// the round.
class TwoThreads {
 public:
  TwoThreads() {
    for (std::size_t i = 0; i < 2; ++i) {
      threads_[i] = std::thread([this, i] {
        for (int round = 0; round < kRounds; ++round) {
          gate_.arrive_and_wait();
          completers_[i].complete(static_cast<int>(i));
          gate_.arrive_and_wait();
        }
      });
    }
  }
  /// fn(Operation, Operation), kRounds times.
  template <class Fn>
  void run(Fn fn) {
    for (int round = 0; round < kRounds; ++round) {
      auto [a, first] = make_completer<Value>();
      auto [b, second] = make_completer<Value>();
      completers_[0] = std::move(first);
      completers_[1] = std::move(second);
      gate_.arrive_and_wait();
      fn(std::move(a), std::move(b));
      gate_.arrive_and_wait();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::barrier<> gate_{3};
  Completer<Value> completers_[2];
  std::thread threads_[2];
};

std::vector<Operation<Value>> both(Operation<Value> a, Operation<Value> b) {
  std::vector<Operation<Value>> operations;
  operations.push_back(std::move(a));
  operations.push_back(std::move(b));
  return operations;
}

TEST(WhenThreads, AllIsBlockedFor) {
  TwoThreads threads;
  threads.run([](Operation<Value> a, Operation<Value> b) {
    const auto values = block(when_all(std::move(a), std::move(b)));
    ASSERT_EQ(*std::get<0>(*values), 0);
    ASSERT_EQ(*std::get<1>(*values), 1);
  });
}

TEST(WhenThreads, AllOfManyIsBlockedFor) {
  TwoThreads threads;
  threads.run([](Operation<Value> a, Operation<Value> b) {
    const Result<std::vector<Value>> values = block(when_all(both(std::move(a), std::move(b))));
    ASSERT_EQ(*(*values)[0], 0);
    ASSERT_EQ(*(*values)[1], 1);
  });
}

TEST(WhenThreads, AnyIsBlockedFor) {
  TwoThreads threads;
  threads.run([](Operation<Value> a, Operation<Value> b) {
    const auto first = block(when_any(std::move(a), std::move(b)));
    ASSERT_EQ(first->value.index(), first->index);
    const Value& value = first->index == 0 ? std::get<0>(first->value) : std::get<1>(first->value);
    ASSERT_EQ(*value, static_cast<int>(first->index));
  });
}

TEST(WhenThreads, AnyOfManyIsBlockedFor) {
  TwoThreads threads;
  threads.run([](Operation<Value> a, Operation<Value> b) {
    const Result<First<Value>> first = block(when_any(both(std::move(a), std::move(b))));
    ASSERT_EQ(*first->value, static_cast<int>(first->index));
  });
}

/// Starts `operation`, and drops it at some moment of its completion.
template <class T>
void start_and_drop(Operation<T> operation, int round) {
  std::atomic<int> calls{0};
  {
    const Started started =
        start(std::move(operation),
              Callback<T>{[](void* to, T) { ++*static_cast<std::atomic<int>*>(to); }, &calls});
    for (int i = 0; i < round % 20; ++i) std::this_thread::yield();
  }
  ASSERT_LE(calls, 1);
}

TEST(WhenThreads, AllIsDroppedMeanwhile) {
  TwoThreads threads;
  threads.run([round = 0](Operation<Value> a, Operation<Value> b) mutable {
    if (++round % 2 == 0) return start_and_drop(when_all(std::move(a), std::move(b)), round);
    start_and_drop(when_all(both(std::move(a), std::move(b))), round);
  });
}

TEST(WhenThreads, AnyIsDroppedMeanwhile) {
  TwoThreads threads;
  threads.run([round = 0](Operation<Value> a, Operation<Value> b) mutable {
    if (++round % 2 == 0) return start_and_drop(when_any(std::move(a), std::move(b)), round);
    start_and_drop(when_any(both(std::move(a), std::move(b))), round);
  });
}

}  // namespace
}  // namespace pawl
