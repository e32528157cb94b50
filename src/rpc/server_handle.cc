// SPDX-License-Identifier: Apache-2.0
#include "rpc/server_handle.h"

#include <utility>

namespace pawl::rpc {

namespace {

/// Does something with a point on its poller, once.
class PointWork final : public Work {
 public:
  enum class What : std::uint8_t { drain, let_go };
  PointWork(std::shared_ptr<ServerPoint> point, What what)
      : Work(&PointWork::go, "server"), point_(std::move(point)), what_(what) {}

 private:
  static void go(Work* work) {
    auto* self = static_cast<PointWork*>(work);
    if (self->what_ == What::drain) self->point_->drain();
    delete self;
  }
  std::shared_ptr<ServerPoint> point_;
  const What what_;
};

/// A drain that nobody awaits goes on; it keeps itself alive until it is over.
class DrainOperation final : public OperationState<Status>, private ServerPoint::Waiter {
 public:
  DrainOperation(std::shared_ptr<detail::NodeCore> node, std::shared_ptr<ServerPoint> point)
      : node_(std::move(node)), point_(std::move(point)), hop_(*this) {}

 private:
  struct Hop : pawl::Work {
    explicit Hop(DrainOperation& owner) : pawl::Work(&Hop::go, "drain"), self(owner) {}
    static void go(pawl::Work* work) { static_cast<Hop*>(work)->self.drain(); }
    DrainOperation& self;
  };

  void on_begin() override {
    this->retain();
    if (Poller::current() == &node_->poller(0)) return drain();
    if (node_->post(0, hop_)) return;
    this->complete({});  // the node is gone, and its connections with it
    this->release();
  }
  void drain() {
    point_->drain();
    point_->wait_drained(*this);
  }
  void drained(Status status) override {
    this->complete(std::move(status));
    this->release();
  }

  const std::shared_ptr<detail::NodeCore> node_;
  const std::shared_ptr<ServerPoint> point_;
  Hop hop_;
};

}  // namespace

ServerHandle::~ServerHandle() {
  if (Poller::current() == &node_->poller(0)) {
    point_->drain();
    return;
  }
  auto work = std::make_unique<PointWork>(point_, PointWork::What::drain);
  if (node_->post(0, *work)) static_cast<void>(work.release());  // it deletes itself
}

void ServerHandle::let_go_later(Poller& poller, std::shared_ptr<ServerPoint> point) {
  poller.post(*new PointWork(std::move(point), PointWork::What::let_go));
}

Operation<Status> ServerHandle::drain() { return make_operation<DrainOperation>(node_, point_); }

}  // namespace pawl::rpc

namespace pawl {

Operation<Status> Server::drain() {
  if (!state_) return Operation<Status>::ready({});
  return static_cast<rpc::ServerHandle*>(state_.get())->drain();
}

}  // namespace pawl
