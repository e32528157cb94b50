// SPDX-License-Identifier: Apache-2.0
#include "rpc/channel_core.h"

#include <memory>
#include <utility>

namespace pawl::detail {

namespace {

/// Lets a lane go on its poller's thread.
class LaneRelease final : public InFrames, private Work {
 public:
  static void post(NodeCore& node, std::size_t poller, std::shared_ptr<rpc::Lane> lane) {
    auto self = std::unique_ptr<LaneRelease>(new LaneRelease(std::move(lane)));
    if (node.post(poller, *self)) {
      static_cast<void>(self.release());  // it deletes itself
    } else {
      node.let_lane_go(poller, std::move(self->lane_));
    }
  }

 private:
  explicit LaneRelease(std::shared_ptr<rpc::Lane> lane)
      : Work(&LaneRelease::run_it, "lane release"), lane_(std::move(lane)) {}
  static void run_it(Work* work) {
    auto* self = static_cast<LaneRelease*>(work);
    self->lane_->channel_gone();
    delete self;
  }
  std::shared_ptr<rpc::Lane> lane_;
};

}  // namespace

ChannelCore::ChannelCore(std::shared_ptr<NodeCore> node, std::string target,
                         const ChannelOptions& options,
                         std::shared_ptr<const rpc::Registry> callbacks, Status refused)
    : node_(std::move(node)),
      target_(std::move(target)),
      options_(options),
      callbacks_(std::move(callbacks)),
      refused_(std::move(refused)),
      lanes_(node_->pollers()) {}

ChannelCore::ChannelCore(std::shared_ptr<NodeCore> node, std::size_t poller,
                         std::shared_ptr<rpc::Lane> lane, std::string target)
    : node_(std::move(node)),
      target_(std::move(target)),
      reverse_(true),
      reverse_poller_(poller),
      lanes_(node_->pollers()) {
  lanes_[poller] = std::move(lane);
}

ChannelCore::~ChannelCore() {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i]) LaneRelease::post(*node_, i, std::move(lanes_[i]));
  }
}

std::size_t ChannelCore::poller_for_call() {
  return reverse_ ? reverse_poller_ : node_->poller_for_calls();
}

std::shared_ptr<rpc::Lane> ChannelCore::lane(std::size_t poller) {
  if (!lanes_[poller]) {
    lanes_[poller] =
        std::make_shared<rpc::ConnectingLane>(node_->engine(poller), options_, target_, callbacks_);
  }
  return lanes_[poller];
}

}  // namespace pawl::detail
