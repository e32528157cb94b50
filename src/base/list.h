// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/check.h"

namespace pawl {

/// A place in one List. Derive from it; an object that shall be in several lists at once derives
/// from `ListNode<Tag>` once per list. Unlinks itself when destroyed.
template <class Tag = void>
class ListNode {
 public:
  ListNode() noexcept = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  [[nodiscard]] bool linked() const noexcept { return next_ != nullptr; }
  /// Leaves its list; nothing happens if it is in none.
  void unlink() noexcept {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    next_ = prev_ = nullptr;
  }

 private:
  template <class T, class U>
  friend class List;
  ListNode* next_ = nullptr;
  ListNode* prev_ = nullptr;
};

/// Intrusive, doubly linked: O(1) insertion and removal, no allocation, owns nothing. The objects
/// that are still linked when the list is destroyed are unlinked. One thread.
template <class T, class Tag = void>
class List {
 public:
  using Node = ListNode<Tag>;

  List() noexcept { head_.next_ = head_.prev_ = &head_; }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List() {
    clear();
    head_.next_ = head_.prev_ = nullptr;
  }

  [[nodiscard]] bool empty() const noexcept { return head_.next_ == &head_; }
  void push_back(T& object) noexcept { insert(*head_.prev_, object); }
  void push_front(T& object) noexcept { insert(head_, object); }
  /// nullptr if the list is empty.
  [[nodiscard]] T* front() const noexcept { return object_or_null(head_.next_); }
  [[nodiscard]] T* back() const noexcept { return object_or_null(head_.prev_); }
  /// The object behind `object`, nullptr at the end.
  [[nodiscard]] T* next(const T& object) const noexcept {
    return object_or_null(static_cast<const Node&>(object).next_);
  }
  T* pop_front() noexcept {
    T* object = front();
    if (object != nullptr) static_cast<Node*>(object)->unlink();
    return object;
  }
  void remove(T& object) noexcept { static_cast<Node&>(object).unlink(); }
  void clear() noexcept {
    while (pop_front() != nullptr) {
    }
  }
  /// Moves everything of `other` behind what is here. O(1).
  void splice_back(List& other) noexcept {
    if (other.empty()) return;
    Node* first = other.head_.next_;
    Node* last = other.head_.prev_;
    other.head_.next_ = other.head_.prev_ = &other.head_;
    first->prev_ = head_.prev_;
    head_.prev_->next_ = first;
    last->next_ = &head_;
    head_.prev_ = last;
  }
  /// Counts by walking. O(n), for tests and reports.
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t n = 0;
    for (const Node* node = head_.next_; node != &head_; node = node->next_) ++n;
    return n;
  }

  class Iterator {
   public:
    explicit Iterator(Node* node) noexcept : node_(node) {}
    T& operator*() const noexcept { return *static_cast<T*>(node_); }
    Iterator& operator++() noexcept {
      node_ = node_->next_;
      return *this;
    }
    friend bool operator==(Iterator, Iterator) = default;

   private:
    Node* node_;
  };
  /// Iteration; the current object must stay linked until the step to the next.
  Iterator begin() noexcept { return Iterator(head_.next_); }
  Iterator end() noexcept { return Iterator(&head_); }

 private:
  void insert(Node& after, T& object) noexcept {
    Node& node = object;
    PAWL_CHECK(!node.linked(), "an object is put into a list while it is in one");
    node.prev_ = &after;
    node.next_ = after.next_;
    after.next_->prev_ = &node;
    after.next_ = &node;
  }
  T* object_or_null(Node* node) const noexcept {
    return node == &head_ ? nullptr : static_cast<T*>(node);
  }

  Node head_;
};

}  // namespace pawl
