// SPDX-License-Identifier: Apache-2.0
// Channel's calls as operations: begun on any thread, run on one poller.
#include "pawl/channel.h"

#include <type_traits>
#include <utility>

#include "rpc/channel_core.h"
#include "rpc/client_call.h"

namespace pawl {

namespace {

template <class T>
T to_outcome(rpc::CallResult result) {
  if constexpr (std::is_same_v<T, Status>) {
    return std::move(result.status);
  } else {
    using Value = typename T::value_type;
    const auto make = [&]() -> Result<Value> {
      if (!result.status.ok()) return std::move(result.status);
      if constexpr (std::is_same_v<Value, Payload>) {
        return std::move(result.reply);
      } else {
        return Value(std::move(result.reply), std::move(result.parts));
      }
    };
    return T(make(), result.info, std::move(result.memory));
  }
}

/// What the user holds of a call: the call itself, counted.
template <class T>
class CallOperation : public OperationState<T>, public rpc::ClientCall {
 public:
  CallOperation(std::shared_ptr<detail::ChannelCore> channel, const Method& method, Payload request,
                Lend lend, Into into, const CallOptions& options)
      : ClientCall(method, std::move(request), std::move(lend), std::move(into), options),
        channel_(std::move(channel)),
        begin_(&CallOperation::begin_here, *this),
        cancel_(&CallOperation::cancel_here, *this) {}

  void retain_call() noexcept override { this->retain(); }
  void release_call() noexcept override { this->release(); }

 protected:
  // What is over keeps no connection, however long its handle is kept. (If complete() did not win,
  // the thread that drops may be using the channel.)
  void finish_call(rpc::CallResult result) override {
    const Ref<CallOperation> self(this);
    if (this->complete(to_outcome<T>(std::move(result)))) channel_.reset();
  }

 private:
  struct Hop : Work {
    Hop(Fn fn, CallOperation& owner) : Work(fn, "call"), self(owner) {}
    CallOperation& self;
  };

  void on_begin() override {
    if (!channel_) return refuse({Code::failed_precondition, "the channel is empty"});
    if (!channel_->refused().ok()) return refuse(channel_->refused());
    if (channel_->node().forked()) {
      return refuse({Code::failed_precondition, detail::NodeCore::kForked});
    }
    if (!channel_->node().status().ok()) return refuse(channel_->node().status());
    poller_ = channel_->poller_for_call();
    if (Poller::current() == &channel_->node().poller(poller_)) return start_here();
    this->retain();
    if (channel_->node().post(poller_, begin_)) return;
    refuse({Code::unavailable, "the node of this channel was shut down"});
    this->release();
  }
  void start_here() {
    if (channel_->node().closed()) {
      return refuse({Code::unavailable, "the node of this channel was shut down"});
    }
    if (this->pending()) start(channel_->lane(poller_));
  }
  static void begin_here(Work* work) {
    CallOperation& self = static_cast<Hop*>(work)->self;
    self.start_here();
    self.release();
  }

  void on_drop() noexcept override {
    if (!channel_) return;
    if (Poller::current() == &channel_->node().poller(poller_)) return cancel();
    this->retain();
    if (!channel_->node().post(poller_, cancel_)) this->release();  // the shutdown ended the call
  }
  static void cancel_here(Work* work) {
    CallOperation& self = static_cast<Hop*>(work)->self;
    self.cancel();
    self.release();
  }

  std::shared_ptr<detail::ChannelCore> channel_;
  std::size_t poller_ = 0;
  Hop begin_, cancel_;
};

/// Waits for the connection that a call would use.
class ConnectOperation final : public CallOperation<Status> {
 public:
  using CallOperation::CallOperation;
  void connected(rpc::Connection&) override { end({}); }
};

constexpr Method kConnect = make_method("connect");

}  // namespace

Operation<Outcome<Payload>> Channel::call(const Method& method, Payload request,
                                          const CallOptions& options) const {
  return make_operation<CallOperation<Outcome<Payload>>>(core_, method, std::move(request), Lend(),
                                                         Into(), options);
}

Operation<Outcome<Payload>> Channel::call(const Method& method, Payload request, Lend lend,
                                          const CallOptions& options) const {
  return make_operation<CallOperation<Outcome<Payload>>>(core_, method, std::move(request),
                                                         std::move(lend), Into(), options);
}

Operation<Outcome<Pulled<Payload>>> Channel::call(const Method& method, Payload request, Into into,
                                                  const CallOptions& options) const {
  return make_operation<CallOperation<Outcome<Pulled<Payload>>>>(core_, method, std::move(request),
                                                                 Lend(), std::move(into), options);
}

Operation<Status> Channel::send(const Method& method, Payload request,
                                const CallOptions& options) const {
  if (!method.one_way) {
    return Operation<Status>::ready(
        {Code::invalid_argument, "send() goes with one-way methods only: use call()"});
  }
  return make_operation<CallOperation<Status>>(core_, method, std::move(request), Lend(), Into(),
                                               options);
}

Operation<Status> Channel::connect(Duration deadline) const {
  CallOptions options;
  options.deadline = deadline;
  return Operation<Status>(
      new ConnectOperation(core_, kConnect, Payload(), Lend(), Into(), options));
}

std::string_view Channel::target() const {
  return core_ ? std::string_view(core_->target()) : std::string_view();
}

}  // namespace pawl
