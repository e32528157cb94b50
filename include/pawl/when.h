// SPDX-License-Identifier: Apache-2.0
#pragma once

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
    if (--left_ == 0) gather(Indices());
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
  std::size_t left_ = sizeof...(T) + 1;
};

template <class... T>
class WhenAnyState final : public OperationState<First<std::variant<T...>>> {
 public:
  explicit WhenAnyState(Operation<T>... operations) : operations_(std::move(operations)...) {}

 private:
  using Indices = std::index_sequence_for<T...>;

  void on_begin() override { begin_each(Indices()); }
  void on_drop() noexcept override { drop_all_but<sizeof...(T)>(Indices()); }

  template <std::size_t... I>
  void begin_each(std::index_sequence<I...>) {
    (begin_one<I>(), ...);
  }
  template <std::size_t I>
  void begin_one() {
    using V = std::tuple_element_t<I, std::tuple<T...>>;
    if (!this->pending()) return;  // decided or dropped
    std::get<I>(operations_).begin(Callback<V>{&WhenAnyState::template done<I>, this});
  }
  template <std::size_t I>
  static void done(void* context, std::tuple_element_t<I, std::tuple<T...>> value) {
    Ref<WhenAnyState> self(static_cast<WhenAnyState*>(context));  // what is dropped may drop us
    self->template drop_all_but<I>(Indices());
    self->complete(
        First<std::variant<T...>>(I, std::variant<T...>(std::in_place_index<I>, std::move(value))));
  }
  template <std::size_t Kept, std::size_t... I>
  void drop_all_but(std::index_sequence<I...>) noexcept {
    ((I == Kept ? void() : std::get<I>(operations_).reset()), ...);
  }

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
    left_ = slots_.size() + 1;
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
    if (--left_ != 0) return;
    std::vector<T> values;
    values.reserve(slots_.size());
    for (Slot& slot : slots_) values.push_back(std::move(*slot.value));
    this->complete(std::move(values));
  }

  std::vector<Slot> slots_;
  std::size_t left_ = 0;
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
      if (!this->pending()) return;
      slot.state = this;
      slot.operation.begin(Callback<T>{&WhenAnyOfState::done, &slot});
    }
  }
  void on_drop() noexcept override { drop_all_but(nullptr); }
  static void done(void* context, T value) {
    auto* slot = static_cast<Slot*>(context);
    Ref<WhenAnyOfState> self(slot->state);
    self->drop_all_but(slot);
    const auto index = static_cast<std::size_t>(slot - self->slots_.data());
    self->complete(First<T>(index, std::move(value)));
  }
  void drop_all_but(const Slot* kept) noexcept {
    for (Slot& slot : slots_) {
      if (&slot != kept) slot.operation.reset();
    }
  }

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
/// the one that was first.
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
