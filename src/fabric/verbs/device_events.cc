// SPDX-License-Identifier: Apache-2.0
// What the device says by itself: ports, its own end, queue pairs in trouble.
#include <string>
#include <utility>
#include <vector>

#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {

void VerbsFabric::take_device_events() {
  ibv_async_event event{};
  while (device_->calls().get_async_event(device_->context(), &event) == 0) {
    device_event(event);
    device_->calls().ack_async_event(&event);
  }
}

void VerbsFabric::device_event(const ibv_async_event& event) {
  const auto port = [&] {
    return device_->name() + " port " + std::to_string(event.element.port_num);
  };
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: {
      // An event keeps its queue pair alive until it is acknowledged.
      const auto id = reinterpret_cast<std::uint64_t>(event.element.qp->qp_context);
      Endpoint* const endpoint = find_any(EndpointId{id});
      if (endpoint == nullptr) return;
      const char* const what =
          event.event_type == IBV_EVENT_QP_ACCESS_ERR ? "the peer asked for what it may not have"
          : event.event_type == IBV_EVENT_QP_REQ_ERR  ? "the peer sent an invalid request"
                                                      : "the device gave the queue pair up";
      return fail(*endpoint, EndReason::failed,
                  Status::with_detail(Code::connection_lost, endpoint->peer + ": " + what,
                                      Ran::unknown, event.event_type));
    }
    case IBV_EVENT_CQ_ERR:
      return device_failed("a completion queue of it overran or broke");
    case IBV_EVENT_DEVICE_FATAL:
      return device_failed("it was removed, or reports that it cannot go on");
    case IBV_EVENT_PORT_ERR:
      return report(Code::unavailable,
                    port() +
                        " is down: is the cable in, is the interface up? Connections fail "
                        "once their work is not acknowledged");
    case IBV_EVENT_PORT_ACTIVE:
      port_changed_ = true;
      return report(Code::unavailable, port() + " was down and is up again");
    case IBV_EVENT_GID_CHANGE:
      port_changed_ = true;
      return report(Code::unavailable,
                    port() +
                        " has other addresses: connections from the old ones may fail, new "
                        "ones use those of now");
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      port_changed_ = true;
      return report(Code::unavailable, port() + " was configured anew by the subnet manager");
    default:
      return;  // no trouble: communication established, drained, and their like
  }
}

/// The port as it is now, for a new connection, where it may have changed.
Status VerbsFabric::look_at_port() {
  if (!port_changed_) return {};
  Status seen = device_->look_at_port();
  port_changed_ = !seen.ok();
  return seen;
}

/// Nothing works any more: every endpoint fails, and no new one is made.
void VerbsFabric::device_failed(const std::string& why) {
  if (dead_) return;
  dead_ = true;
  report(Code::unavailable, device_->name() + ": " + why);
  std::vector<EndpointId> all;
  endpoints_.for_each(
      [&](std::uint64_t id, const std::unique_ptr<Endpoint>&) { all.push_back(EndpointId{id}); });
  for (const EndpointId id : all) {
    Endpoint* const endpoint = find_any(id);
    if (endpoint == nullptr) continue;
    endpoint->drain_over = endpoint->drain_over || endpoint->state == State::error;
    fail(*endpoint, EndReason::failed,
         Status::with_detail(Code::connection_lost, device_->name() + ": " + why, Ran::unknown));
  }
}

void VerbsFabric::report(Code code, std::string text) {
  if (events_.size() >= kUnannouncedEventsMax) return;
  Event event;
  event.kind = EventKind::device;
  event.status = Status::with_detail(code, std::move(text));
  events_.push_back(std::move(event));
}

}  // namespace pawl::fabric::verbs
