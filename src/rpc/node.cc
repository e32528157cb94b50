// SPDX-License-Identifier: Apache-2.0
#include "pawl/node.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "rpc/node_core.h"

namespace pawl {

Node::Node(const NodeOptions& options)
    : core_(std::make_shared<detail::NodeCore>(options, *this)) {}
Node::~Node() {
  if (core_->forked()) {
    static_cast<void>(new std::shared_ptr<detail::NodeCore>(std::move(core_)));  // never ended here
    return;
  }
  core_->close();
}

Status Node::status() const { return core_->status(); }

Result<Server> Node::serve_list(std::string_view address, std::span<Service* const> services) {
  return core_->serve(address, services);
}
Channel Node::channel_list(std::string_view target, const ChannelOptions& options,
                           std::span<Service* const> callbacks) {
  return core_->channel(target, options, callbacks);
}

Pool& Node::pool() { return core_->context().pool; }

void Node::run() { core_->run(); }
void Node::run_background() { core_->run_background(); }
void Node::stop() { core_->stop(); }
bool Node::run_once() { return core_->foreign_poller().run_once(); }
bool Node::arm() { return core_->foreign_poller().arm(); }
int Node::event_fd() const { return core_->poller(0).event_fd(); }
TimePoint Node::next_timer() const { return core_->poller(0).next_event(); }
bool Node::running() const { return core_->has_threads(); }
Poller& Node::poller(std::size_t index) {
  PAWL_CHECK(!core_->forked(), detail::NodeCore::kForked);
  return core_->poller(index);
}
const Clock& Node::clock() const { return core_->context().clock; }
NodeStats Node::stats() const { return core_->stats(); }

// --- tickets ---------------------------------------------------------------------------------

Result<Ticket> Node::issue_ticket(std::vector<Block> blocks, std::string_view listen,
                                  Duration deadline) {
  return core_->issue_ticket(std::move(blocks), listen, deadline);
}

void Node::end_ticket(const Ticket& ticket) {
  if (Result<rpc::TicketFields> fields = rpc::decode_ticket(ticket.bytes()); fields.ok()) {
    core_->tickets().end(*fields);
  }
}

Operation<Outcome<Pulled<Payload>>> Node::pull(const Ticket& ticket, Into into,
                                               const CallOptions& options) {
  Result<rpc::TicketFields> fields = rpc::decode_ticket(ticket.bytes());
  if (!fields.ok()) {
    return Operation<Outcome<Pulled<Payload>>>::ready(Outcome<Pulled<Payload>>(fields.status()));
  }
  return core_->ticket_channel(fields->address)
      .call(rpc::kTicketPull, Payload::of(ticket.bytes()), std::move(into), options);
}

}  // namespace pawl
