// SPDX-License-Identifier: Apache-2.0
#include "pawl/task_group.h"

#include "base/list.h"
#include "base/ref_counted.h"

namespace pawl {
namespace detail {
namespace {
class JoinState;
}

class GroupCore final : public RefCounted<GroupCore> {
 public:
  explicit GroupCore(std::size_t children_max) noexcept : children_max_(children_max) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool full() const noexcept { return size_ >= children_max_; }

  void link(GroupChild& child) noexcept {
    child.previous_ = last_;
    (last_ == nullptr ? first_ : last_->next_) = &child;
    last_ = &child;
    ++size_;
  }

  void ended(GroupChild& child, Status status) {
    const Ref<GroupCore> keep(this);
    if (!status.ok() && outcome_.ok()) outcome_ = std::move(status);
    remove(child);
    if (size_ == 0) complete_joins();
  }

  void cancel() noexcept {
    if (size_ == 0) return;
    const Ref<GroupCore> keep(this);
    while (first_ != nullptr) remove(*first_);
    if (outcome_.ok()) outcome_ = Status(Code::cancelled, "the TaskGroup was cancelled");
    complete_joins();
  }

  List<JoinState>& joins() noexcept { return joins_; }
  Status take_outcome() noexcept { return std::exchange(outcome_, Status()); }

 private:
  void remove(GroupChild& child) noexcept {
    (child.previous_ == nullptr ? first_ : child.previous_->next_) = child.next_;
    (child.next_ == nullptr ? last_ : child.next_->previous_) = child.previous_;
    --size_;
    delete &child;
  }
  void complete_joins();

  const std::size_t children_max_;
  std::size_t size_ = 0;
  GroupChild* first_ = nullptr;
  GroupChild* last_ = nullptr;
  Status outcome_;
  List<JoinState> joins_;
};

namespace {

class JoinState final : public OperationState<Status>, public ListNode<> {
 public:
  explicit JoinState(Ref<GroupCore> core) noexcept : core_(std::move(core)) {}

 private:
  void on_begin() override {
    if (core_->size() == 0) {
      complete(core_->take_outcome());
    } else {
      core_->joins().push_back(*this);
    }
  }
  void on_drop() noexcept override { unlink(); }

  const Ref<GroupCore> core_;
};

}  // namespace

void GroupCore::complete_joins() {
  if (joins_.empty()) return;
  const Status outcome = take_outcome();
  List<JoinState> waiting;
  waiting.splice_back(joins_);
  while (JoinState* join = waiting.pop_front()) join->complete(outcome);
}

void GroupChild::ended(Status status) { core_.ended(*this, std::move(status)); }

}  // namespace detail

TaskGroup::TaskGroup(std::size_t children_max) : core_(make_ref<detail::GroupCore>(children_max)) {}
TaskGroup::TaskGroup(TaskGroup&& other) noexcept = default;
TaskGroup& TaskGroup::operator=(TaskGroup&& other) noexcept {
  if (this != &other) {
    if (core_) core_->cancel();
    core_ = std::move(other.core_);
  }
  return *this;
}
TaskGroup::~TaskGroup() {
  if (core_) core_->cancel();
}

std::size_t TaskGroup::size() const noexcept { return core_->size(); }
void TaskGroup::cancel() noexcept { core_->cancel(); }
Operation<Status> TaskGroup::join() { return make_operation<detail::JoinState>(core_); }
void TaskGroup::link(detail::GroupChild& child) noexcept { core_->link(child); }

Status TaskGroup::has_room() const {
  if (!core_->full()) return Status();
  return Status(Code::resource_exhausted,
                "the TaskGroup has its most children (children_max); join some first");
}

}  // namespace pawl
