// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

#include "fabric/socket/slot_table.h"
#include "fabric/verbs/device.h"
#include "fabric/work.h"

namespace pawl::fabric::verbs {

/// The type-2 memory windows of one fabric, and what may be done with each. It decides at the post,
/// since some misuse may not reach a device: a second LOCAL_INV of a key crashes Linux 6.1.
///
///   idle ──plan_bind──▶ bound ──plan_invalidate──▶ idle      (any failure: spent)
///
/// `allocate`, `free` and `next_key`: any thread. The rest: the poller.
class Windows {
 public:
  explicit Windows(const Device& device) : device_(device) {}
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  Result<WindowId> allocate();
  [[nodiscard]] std::uint64_t next_key(WindowId id) const;
  /// Success is the device's word that no READ is served through it any more. failed_precondition
  /// while posted work names it, unless its endpoint is in ERR.
  Status free(WindowId id);

  /// Fills in the request, or says why it may not be posted. After it comes `posted` or
  /// `not_posted`; several plans are taken back in the reverse order.
  Status plan_bind(WindowId id, EndpointId endpoint, ibv_send_wr& out);
  Status plan_invalidate(WindowId id, EndpointId endpoint, ibv_send_wr& out);
  /// After a bind was posted the device's library wants to find its key in the window.
  void posted(WindowId id, Opcode op);
  void not_posted(WindowId id, Opcode op);
  /// What a planned bind or invalidate ended with.
  void completed(WindowId id, CompletionStatus status);

  /// The endpoint is in ERR: what is bound through it can only be freed, at once.
  void endpoint_failed(EndpointId endpoint);
  /// A window is bound through the endpoint, or may be: its queue pair cannot be destroyed yet.
  [[nodiscard]] bool holds(EndpointId endpoint) const;

  /// Ends all of them; every endpoint is in ERR.
  void free_all();

  [[nodiscard]] std::uint64_t count() const;

 private:
  enum class State : std::uint8_t {
    idle,
    bound,
    spent,    ///< it may be bound or not: nothing but `free` is safe
    freeing,  ///< the device is at it, on some thread
  };
  struct Window {
    ibv_mw* mw = nullptr;
    State state = State::idle;
    std::uint32_t key = 0;      ///< of the last bind that was planned; at first the device's
    std::uint32_t binds = 0;    ///< planned
    std::uint32_t pending = 0;  ///< planned and not completed
    EndpointId through;         ///< the endpoint of the last bind
    bool abandoned = false;     ///< that endpoint is in ERR
  };

  const Device& device_;
  mutable std::mutex mutex_;
  SlotTable<Window> windows_;
};

}  // namespace pawl::fabric::verbs
