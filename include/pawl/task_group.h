// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "pawl/deadline.h"
#include "pawl/detail/ref.h"
#include "pawl/detail/status_value.h"
#include "pawl/operation.h"
#include "pawl/task.h"

namespace pawl {

namespace detail {
class GroupCore;

/// One running child. In the group's list until it ended or was dropped.
class GroupChild {
 public:
  GroupChild(const GroupChild&) = delete;
  GroupChild& operator=(const GroupChild&) = delete;
  virtual ~GroupChild() = default;

  static void* operator new(std::size_t bytes) { return frame_allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    frame_free(memory, bytes);
  }

 protected:
  explicit GroupChild(GroupCore& core) noexcept : core_(core) {}
  /// Destroys this.
  void ended(Status status);

 private:
  friend class GroupCore;
  GroupCore& core_;
  GroupChild* next_ = nullptr;
  GroupChild* previous_ = nullptr;
};

template <class T>
class GroupChildOf final : public GroupChild {
 public:
  GroupChildOf(GroupCore& core, Operation<T> operation) noexcept
      : GroupChild(core), operation_(std::move(operation)) {}
  void begin() { operation_.begin(Callback<T>{&GroupChildOf::done, this}); }

 private:
  static void done(void* context, T value) {
    auto* self = static_cast<GroupChildOf*>(context);
    if constexpr (Fallible<T>) {
      if (!value.ok()) return self->ended(take_status(value));
    }
    self->ended(Status());
  }
  Operation<T> operation_;
};
}  // namespace detail

/// Children that live no longer than the group: `group.spawn(serve(connection))`. Dropping the
/// group drops its children. Bounded. Poller thread.
class TaskGroup {
 public:
  explicit TaskGroup(std::size_t children_max = 1024);
  TaskGroup(TaskGroup&& other) noexcept;
  TaskGroup& operator=(TaskGroup&& other) noexcept;
  ~TaskGroup();

  /// Starts a Task or Operation (by value) on the current poller, at once: it runs to its first
  /// suspension before spawn returns. Its value is dropped; join() tells of a failure.
  /// Code::resource_exhausted if children_max run already (then it was not started).
  template <class A>
  Status spawn(A&& awaitable) {
    static_assert(!std::is_lvalue_reference_v<A>, "spawn consumes what it runs: std::move");
    using T = detail::OperationValueT<A>;
    if (Status room = has_room(); !room.ok()) return room;
    auto* child =
        new detail::GroupChildOf<T>(core(), detail::to_operation(std::forward<A>(awaitable)));
    link(*child);
    child->begin();  // may be gone after this
    return Status();
  }

  /// Children that have not ended.
  [[nodiscard]] std::size_t size() const noexcept;

  /// Drops all children. join() then gives Code::cancelled unless one had failed before. Called
  /// from inside a child, that child ends at its next suspension.
  void cancel() noexcept;

  /// Completes when no child is left: with the first failure of a child since the last join, or ok.
  /// Not cancelled by the group's end: a join completes when the group is dropped.
  Operation<Status> join();

 private:
  detail::GroupCore& core() const noexcept { return *core_; }
  Status has_room() const;
  void link(detail::GroupChild& child) noexcept;

  Ref<detail::GroupCore> core_;
};

}  // namespace pawl
