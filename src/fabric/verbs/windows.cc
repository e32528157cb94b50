// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/windows.h"

#include <cerrno>

#include "fabric/fabric.h"
#include "fabric/verbs/call_error.h"

namespace pawl::fabric::verbs {

Windows::~Windows() { free_all(); }

void Windows::free_all() {
  const std::lock_guard lock(mutex_);
  windows_.for_each([this](std::uint64_t id, Window& window) {
    static_cast<void>(device_.calls().dealloc_mw(window.mw));
    windows_.erase(id);
  });
}

Result<WindowId> Windows::allocate() {
  ibv_mw* const mw = device_.calls().alloc_mw(device_.pd());
  if (mw == nullptr) return call_error(Call::alloc_mw, errno, "a window at " + device_.name());
  const std::lock_guard lock(mutex_);
  Window window;
  window.mw = mw;
  window.key = mw->rkey;
  return WindowId{windows_.insert(window)};
}

std::uint64_t Windows::next_key(WindowId id) const {
  const std::lock_guard lock(mutex_);
  const Window* const window = windows_.find(id.value);
  return window == nullptr ? 0 : ibv_inc_rkey(window->key);
}

Status Windows::free(WindowId id) {
  ibv_mw* mw = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Window* const window = windows_.find(id.value);
    if (window == nullptr || window->state == State::freeing) {
      return Status(Code::not_found, "free_window: no such window");
    }
    if (window->pending != 0 && !window->abandoned) {
      return Status(Code::failed_precondition,
                    "free_window: posted work names the window; wait for its completion, or take "
                    "its endpoint to ERR");
    }
    window->state = State::freeing;
    mw = window->mw;
  }
  const int error = device_.calls().dealloc_mw(mw);
  const std::lock_guard lock(mutex_);
  if (error == 0) {
    windows_.erase(id.value);
    return {};
  }
  windows_.find(id.value)->state = State::spent;
  return call_error(Call::dealloc_mw, error, "a window at " + device_.name());
}

Status Windows::plan_bind(WindowId id, EndpointId endpoint, ibv_send_wr& out) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr) return Status(Code::failed_precondition, "bind: no such window");
  if (window->state != State::idle) {
    return Status(Code::failed_precondition, "bind: the window is bound, or can only be freed");
  }
  if (window->pending != 0 && window->through != endpoint) {
    return Status(Code::failed_precondition,
                  "bind: the window's invalidate on another endpoint has not completed");
  }
  if (window->binds == kWindowBindsMax) {
    return Status(Code::failed_precondition,
                  "bind: the window was bound 255 times; free it and take a new one");
  }
  window->state = State::bound;
  window->key = ibv_inc_rkey(window->key);
  window->through = endpoint;
  window->abandoned = false;
  ++window->binds;
  ++window->pending;
  out.opcode = IBV_WR_BIND_MW;
  out.bind_mw.mw = window->mw;
  out.bind_mw.rkey = window->key;
  return {};
}

Status Windows::plan_invalidate(WindowId id, EndpointId endpoint, ibv_send_wr& out) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr || window->state != State::bound || window->through != endpoint) {
    return Status(Code::failed_precondition,
                  "invalidate: the window is not bound through this endpoint");
  }
  window->state = State::idle;
  ++window->pending;
  out.opcode = IBV_WR_LOCAL_INV;
  out.invalidate_rkey = window->key;
  return {};
}

void Windows::posted(WindowId id, Opcode op) {
  const std::lock_guard lock(mutex_);
  const Window* const window = windows_.find(id.value);
  if (window != nullptr && op == Opcode::bind) window->mw->rkey = window->key;
}

void Windows::not_posted(WindowId id, Opcode op) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr) return;
  --window->pending;
  if (op == Opcode::invalidate) {
    window->state = State::bound;
    return;
  }
  window->state = State::idle;
  window->key = window->mw->rkey;
  --window->binds;
}

void Windows::completed(WindowId id, CompletionStatus status) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr || window->pending == 0) return;
  --window->pending;
  if (status != CompletionStatus::success && window->state != State::freeing) {
    window->state = State::spent;
  }
}

void Windows::endpoint_failed(EndpointId endpoint) {
  const std::lock_guard lock(mutex_);
  windows_.for_each([endpoint](std::uint64_t, Window& window) {
    if (window.through != endpoint) return;
    window.abandoned = true;
    if (window.state == State::bound || window.pending != 0) {
      if (window.state != State::freeing) window.state = State::spent;
    }
  });
}

bool Windows::holds(EndpointId endpoint) const {
  const std::lock_guard lock(mutex_);
  bool held = false;
  windows_.for_each([&](std::uint64_t, const Window& window) {
    held = held || (window.through == endpoint && window.state != State::idle);
  });
  return held;
}

std::uint64_t Windows::count() const {
  const std::lock_guard lock(mutex_);
  return windows_.size();
}

}  // namespace pawl::fabric::verbs
