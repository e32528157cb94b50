// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <type_traits>
#include <utility>

#include "pawl/detail/awaiter.h"

namespace pawl::detail {

/// Awaits another coroutine library's awaitable inside a Task: keeps the root informed about
/// running and waiting. Such an awaitable must resume on the poller's thread.
template <class Awaiter>
class ForeignAwaiter {
 public:
  template <class A>
  ForeignAwaiter(A&& awaitable, Root* root)
      : awaiter_(get(std::forward<A>(awaitable))), root_(root) {}
  ForeignAwaiter(const ForeignAwaiter&) = delete;
  ForeignAwaiter& operator=(const ForeignAwaiter&) = delete;

  bool await_ready() { return static_cast<bool>(awaiter_.await_ready()); }
  template <class P>
  auto await_suspend(std::coroutine_handle<P> handle) {
    using R = decltype(awaiter_.await_suspend(handle));
    const bool doomed = root_->doomed();
    root_->set_active(false);
    if (!doomed) return awaiter_.await_suspend(handle);
    root_->destroy();  // this awaiter too
    if constexpr (std::is_same_v<R, bool>) {
      return true;
    } else if constexpr (!std::is_void_v<R>) {
      return R(std::noop_coroutine());
    }
  }
  decltype(auto) await_resume() {
    root_->set_active(true);
    return awaiter_.await_resume();
  }

  template <class A>
  static decltype(auto) get(A&& awaitable) {
    if constexpr (requires { std::forward<A>(awaitable).operator co_await(); }) {
      return std::forward<A>(awaitable).operator co_await();
    } else if constexpr (requires { operator co_await(std::forward<A>(awaitable)); }) {
      return operator co_await(std::forward<A>(awaitable));
    } else {
      return std::forward<A>(awaitable);
    }
  }

 private:
  Awaiter awaiter_;
  Root* root_;
};

}  // namespace pawl::detail
