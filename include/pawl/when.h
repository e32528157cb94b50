// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "pawl/deadline.h"
#include "pawl/operation.h"
#include "pawl/task.h"

namespace pawl {

/// Which one was first, and its value.
template <class V>
class First {
 public:
  First(std::size_t first_index, V first_value) noexcept
      : index(first_index), value(std::move(first_value)) {}

  std::size_t index;
  V value;  ///< for when_any(a, b, ...): a variant, active at `index`
};

namespace detail {

template <class... T>
class WhenAllState final : public OperationState<std::tuple<T...>> {
 public:
  explicit WhenAllState(Operation<T>... operations) : operations_(std::move(operations)...) {}

 private:
  using Indices = std::index_sequence_for<T...>;

  void on_begin() override { begin_each(Indices()); }
  void on_drop() noexcept override { drop_each(Indices()); }

  template <std::size_t... I>
  void begin_each(std::index_sequence<I...>) {
    (begin_one<I>(), ...);
    ended();  // counted once for the loop itself, so that it completes after the last begin
  }
  template <std::size_t I>
  void begin_one() {
    using V = std::tuple_element_t<I, std::tuple<T...>>;
    if (!this->pending()) return;  // dropped by one that was begun before
    std::get<I>(operations_).begin(Callback<V>{&WhenAllState::template done<I>, this});
  }
  template <std::size_t I>
  static void done(void* context, std::tuple_element_t<I, std::tuple<T...>> value) {
    auto* self = static_cast<WhenAllState*>(context);
    std::get<I>(self->values_).emplace(std::move(value));
    self->ended();
  }
  void ended() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) gather(Indices());
  }
  template <std::size_t... I>
  void gather(std::index_sequence<I...>) {
    this->complete(std::tuple<T...>(std::move(*std::get<I>(values_))...));
  }
  template <std::size_t... I>
  void drop_each(std::index_sequence<I...>) noexcept {
    (std::get<I>(operations_).reset(), ...);
  }

  std::tuple<std::optional<T>...> values_;
  std::tuple<Operation<T>...> operations_;
  std::atomic<std::size_t> left_{sizeof...(T) + 1};
};

/// Which of several is first, and who drops the others: off a poller they complete on threads of
/// their own, and the whole may be dropped meanwhile by another one.
class Race {
 public:
  /// True for the first.
  bool win() noexcept { return !won_.exchange(true, std::memory_order_acq_rel); }
  [[nodiscard]] bool won() const noexcept { return won_.load(std::memory_order_acquire); }
  /// Called when the winner's value is stored, and when all are begun: true for the second of the
  /// two calls. Before that nothing is dropped.
  bool settled() noexcept { return left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  /// Runs `drop`, which drops the others, unless it ran or runs already: then `false`.
  template <class Fn>
  bool drop_once(Fn&& drop) noexcept {
    const void* nobody = nullptr;
    if (!dropper_.compare_exchange_strong(nobody, &this_thread, std::memory_order_acq_rel)) {
      return false;
    }
    drop();
    dropper_.store(this, std::memory_order_release);
    dropper_.notify_all();
    return true;
  }
  /// When this returns all are dropped: here, also inside this thread's `drop_once`, or by another
  /// thread's.
  template <class Fn>
  void drop_all(Fn&& drop) noexcept {
    if (drop_once(drop)) return;
    const void* dropper = dropper_.load(std::memory_order_acquire);
    if (dropper == &this_thread) {
      drop();
    } else if (dropper != this) {
      dropper_.wait(dropper, std::memory_order_acquire);
    }
  }

 private:
  std::atomic<bool> won_{false};
  std::atomic<int> left_{2};
  std::atomic<const void*> dropper_{nullptr};  // a thread's context while it drops, then `this`
};

template <class... T>
class WhenAnyState final : public OperationState<First<std::variant<T...>>> {
 public:
  explicit WhenAnyState(Operation<T>... operations) : operations_(std::move(operations)...) {}

 private:
  using Indices = std::index_sequence_for<T...>;

  void on_begin() override { begin_each(Indices()); }
  void on_drop() noexcept override {
    race_.drop_all([this] { drop_all_but(sizeof...(T), Indices()); });
  }

  template <std::size_t... I>
  void begin_each(std::index_sequence<I...>) {
    (begin_one<I>(), ...);
    if (race_.settled()) finish();
  }
  template <std::size_t I>
  void begin_one() {
    using V = std::tuple_element_t<I, std::tuple<T...>>;
    if (race_.won() || !this->pending()) return;
    std::get<I>(operations_).begin(Callback<V>{&WhenAnyState::template done<I>, this});
  }
  template <std::size_t I>
  static void done(void* context, std::tuple_element_t<I, std::tuple<T...>> value) {
    auto* self = static_cast<WhenAnyState*>(context);
    if (!self->race_.win()) return;
    self->first_.emplace(std::in_place_index<I>, std::move(value));
    if (self->race_.settled()) self->finish();
  }
  void finish() {
    const Ref<WhenAnyState> self(this);  // what is dropped may drop us
    if (race_.drop_once([this] { drop_all_but(first_->index(), Indices()); })) {
      this->complete(First<std::variant<T...>>(first_->index(), std::move(*first_)));
    }
  }
  template <std::size_t... I>
  void drop_all_but(std::size_t kept, std::index_sequence<I...>) noexcept {
    ((I == kept ? void() : std::get<I>(operations_).reset()), ...);
  }

  Race race_;
  std::optional<std::variant<T...>> first_;
  std::tuple<Operation<T>...> operations_;
};

/// One of many of the same type.
template <class T, class State>
struct ManySlot {
  explicit ManySlot(Operation<T> op) noexcept : operation(std::move(op)) {}
  Operation<T> operation;
  std::optional<T> value;
  State* state = nullptr;
};

template <class T>
class WhenAllOfState final : public OperationState<std::vector<T>> {
 public:
  explicit WhenAllOfState(std::vector<Operation<T>> operations) {
    slots_.reserve(operations.size());
    for (auto& operation : operations) slots_.emplace_back(std::move(operation));
    left_.store(slots_.size() + 1, std::memory_order_relaxed);
  }

 private:
  using Slot = ManySlot<T, WhenAllOfState>;

  void on_begin() override {
    for (Slot& slot : slots_) {
      if (!this->pending()) return;
      slot.state = this;
      slot.operation.begin(Callback<T>{&WhenAllOfState::done, &slot});
    }
    ended();
  }
  void on_drop() noexcept override {
    for (Slot& slot : slots_) slot.operation.reset();
  }
  static void done(void* context, T value) {
    auto* slot = static_cast<Slot*>(context);
    slot->value.emplace(std::move(value));
    slot->state->ended();
  }
  void ended() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    std::vector<T> values;
    values.reserve(slots_.size());
    for (Slot& slot : slots_) values.push_back(std::move(*slot.value));
    this->complete(std::move(values));
  }

  std::vector<Slot> slots_;
  std::atomic<std::size_t> left_{0};
};

template <class T>
class WhenAnyOfState final : public OperationState<First<T>> {
 public:
  explicit WhenAnyOfState(std::vector<Operation<T>> operations) {
    require(!operations.empty(), "when_any of nothing would never end");
    slots_.reserve(operations.size());
    for (auto& operation : operations) slots_.emplace_back(std::move(operation));
  }

 private:
  using Slot = ManySlot<T, WhenAnyOfState>;

  void on_begin() override {
    for (Slot& slot : slots_) {
      if (race_.won() || !this->pending()) break;
      slot.state = this;
      slot.operation.begin(Callback<T>{&WhenAnyOfState::done, &slot});
    }
    if (race_.settled()) finish();
  }
  void on_drop() noexcept override {
    race_.drop_all([this] { drop_all_but(slots_.size()); });
  }
  static void done(void* context, T value) {
    auto* slot = static_cast<Slot*>(context);
    WhenAnyOfState* self = slot->state;
    if (!self->race_.win()) return;
    self->first_.emplace(static_cast<std::size_t>(slot - self->slots_.data()), std::move(value));
    if (self->race_.settled()) self->finish();
  }
  void finish() {
    const Ref<WhenAnyOfState> self(this);
    if (race_.drop_once([this] { drop_all_but(first_->index); })) {
      this->complete(std::move(*first_));
    }
  }
  void drop_all_but(std::size_t kept) noexcept {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (i != kept) slots_[i].operation.reset();
    }
  }

  Race race_;
  std::optional<First<T>> first_;
  std::vector<Slot> slots_;
};

template <class A>
auto to_operations(std::vector<A>&& awaitables) {
  std::vector<Operation<OperationValueT<A>>> operations;
  operations.reserve(awaitables.size());
  for (auto& awaitable : awaitables) operations.push_back(to_operation(std::move(awaitable)));
  return operations;
}

}  // namespace detail

/// Starts all (Tasks and Operations, by value, in this order) and gives their values as a tuple
/// when the last is done; void becomes Unit. Failures do not end the others. Dropping it drops all.
/// On a poller or off one: `block(when_all(...))` for Operations that do not need one.
template <class... A>
requires((detail::kIsTask<A> || detail::IsOperation<A>)&&...) auto when_all(A... awaitables) {
  return make_operation<detail::WhenAllState<detail::OperationValueT<A>...>>(
      detail::to_operation(std::move(awaitables))...);
}
/// The same for many of one type; the values are in the order of the tasks.
template <class A>
auto when_all(std::vector<A> awaitables) {
  return make_operation<detail::WhenAllOfState<detail::OperationValueT<A>>>(
      detail::to_operations(std::move(awaitables)));
}

/// Starts all until one is done, drops the others, and gives a First: the index and the value of
/// the one that was first. On a poller or off one.
template <class... A>
requires(sizeof...(A) > 0 &&
         ((detail::kIsTask<A> || detail::IsOperation<A>)&&...)) auto when_any(A... awaitables) {
  return make_operation<detail::WhenAnyState<detail::OperationValueT<A>...>>(
      detail::to_operation(std::move(awaitables))...);
}
template <class A>
auto when_any(std::vector<A> awaitables) {
  return make_operation<detail::WhenAnyOfState<detail::OperationValueT<A>>>(
      detail::to_operations(std::move(awaitables)));
}

}  // namespace pawl
