// SPDX-License-Identifier: Apache-2.0
// The handler's views of a served call: Call, Upload, Download.
#include "pawl/call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "pawl/channel.h"
#include "pawl/detail/frame_vector.h"
#include "rpc/channel_core.h"
#include "rpc/engine.h"
#include "rpc/lane.h"
#include "rpc/server_call.h"

namespace pawl {

namespace {

using rpc::PullBase;
using Landings = memory::Landings;

/// What a pull is to be made of, and of what.
struct PullArguments {
  std::size_t first = 0;
  std::size_t count = 0;
  ByteRange range;
};

template <class T>
class PullOperation : public OperationState<Result<T>>, protected PullBase {
 public:
  explicit PullOperation(detail::ServerCall& call) : PullBase(call) {}

 private:
  void on_drop() noexcept override { let_go(); }
  void pull_over(Result<Landings> landing) override {
    this->retain();
    if (!landing.ok()) {
      this->complete(std::move(landing).status());
    } else {
      this->complete(take(*landing));
    }
    this->release();
  }
  virtual Result<T> take(Landings& landing) = 0;
};

class PullBuffer final : public PullOperation<Buffer> {
 public:
  PullBuffer(detail::ServerCall& call, Pool& pool, const PullArguments& what)
      : PullOperation(call), pool_(pool), what_(what) {}

 private:
  void on_begin() override { pull_from_pool(pool_, what_.first, what_.count, what_.range); }
  Result<Buffer> take(Landings& landing) override {
    const std::size_t size = landing[0].size();
    return std::move(landing[0]).accept_buffer(size);
  }
  Pool& pool_;
  const PullArguments what_;
};

class PullUnconfirmed final : public PullOperation<Unconfirmed> {
 public:
  PullUnconfirmed(detail::ServerCall& call, Pool& pool, const PullArguments& what)
      : PullOperation(call), pool_(pool), what_(what) {
    set_hold_check();
  }

 private:
  void on_begin() override { pull_from_pool(pool_, what_.first, what_.count, what_.range); }
  Result<Unconfirmed> take(Landings& landing) override {
    Landings& held = call().unconfirmed();
    held.push_back(std::move(landing[0]));
    call().unconfirmed_pieces().insert(call().unconfirmed_pieces().end(), pieces().begin(),
                                       pieces().end());
    return Unconfirmed(held.size() - 1, held.back().size());
  }
  Pool& pool_;
  const PullArguments what_;
};

class PullIntoRegion final : public PullOperation<Block> {
 public:
  PullIntoRegion(detail::ServerCall& call, const Region& region, std::size_t offset,
                 ByteRange range)
      : PullOperation(call), region_(region), offset_(offset), range_(range) {}

 private:
  void on_begin() override { pull_into_region(region_, offset_, range_); }
  Result<Block> take(Landings& landing) override {
    const std::size_t size = landing[0].size();
    return std::move(landing[0]).accept(size);
  }
  const Region region_;
  const std::size_t offset_;
  const ByteRange range_;
};

class ConfirmPulls final : public PullOperation<std::vector<Buffer>> {
 public:
  using PullOperation::PullOperation;

 private:
  void on_begin() override { check_unconfirmed(); }
  Result<std::vector<Buffer>> take(Landings& landing) override {
    std::vector<Buffer> buffers;
    for (memory::Landing& each : landing) {
      const std::size_t size = each.size();
      Result<Buffer> buffer = std::move(each).accept_buffer(size);
      if (!buffer.ok()) return buffer.status();
      buffers.push_back(*std::move(buffer));
    }
    return buffers;
  }
};

}  // namespace

// --- Upload, Download ------------------------------------------------------------------------

std::size_t Upload::segments() const { return impl_.upload().size(); }
std::uint64_t Upload::size() const {
  std::uint64_t bytes = 0;
  for (const rpc::SegmentDescriptor& segment : impl_.upload()) bytes += segment.length;
  return bytes;
}
std::uint64_t Upload::segment_size(std::size_t i) const {
  return i < impl_.upload().size() ? impl_.upload()[i].length : 0;
}

Operation<Result<Buffer>> Upload::pull(Pool& pool, ByteRange range) {
  return Operation<Result<Buffer>>(new PullBuffer(impl_, pool, {0, impl_.upload().size(), range}));
}
Operation<Result<Buffer>> Upload::pull_segment(std::size_t i, Pool& pool, ByteRange range) {
  return Operation<Result<Buffer>>(new PullBuffer(impl_, pool, {i, 1, range}));
}
Operation<Result<Block>> Upload::pull_into(const Region& region, std::size_t offset,
                                           ByteRange range) {
  return Operation<Result<Block>>(new PullIntoRegion(impl_, region, offset, range));
}
Operation<Result<Unconfirmed>> Upload::pull_unconfirmed(Pool& pool, ByteRange range) {
  return Operation<Result<Unconfirmed>>(
      new PullUnconfirmed(impl_, pool, {0, impl_.upload().size(), range}));
}
Operation<Result<std::vector<Buffer>>> Upload::confirm() {
  return Operation<Result<std::vector<Buffer>>>(new ConfirmPulls(impl_));
}

void Download::add(Block block) { impl_.add_part(std::move(block)); }
void Download::add(Status status) { impl_.add_part(std::move(status)); }
std::size_t Download::segments() const { return impl_.parts(); }

// --- Call ------------------------------------------------------------------------------------

Peer Call::peer() const {
  return Peer{impl_.connection().peer_address(), {}, impl_.connection().peer_incarnation()};
}
std::string_view Call::method() const { return impl_.method_name(); }
Pool& Call::pool() const { return impl_.connection().engine().context().pool; }
Node& Call::node() const { return *impl_.connection().engine().context().node; }
bool Call::cancelled() const { return impl_.cancelled(); }
Operation<Status> Call::on_cancelled() const { return impl_.on_cancelled(); }

Duration Call::remaining() const {
  if (impl_.deadline() == TimePoint::never()) return Duration::max();
  return impl_.deadline() - impl_.connection().engine().poller().now();
}

CallOptions Call::inherit(Duration margin) const {
  CallOptions options;
  Duration left = remaining();
  if (left != Duration::max()) left -= margin;
  // 0 would mean the channel's default; what is used up must stay used up.
  options.deadline = left.count() <= 0 ? Duration(-1) : left;
  options.priority = priority();
  options.tenant = tenant();
  options.trace = trace();
  return options;
}

std::string_view Call::metadata(std::string_view key) const {
  return rpc::find_metadata(impl_.request().metadata, key);
}
Priority Call::priority() const { return impl_.request().priority; }
std::uint32_t Call::tenant() const { return impl_.request().tenant; }
const TraceContext& Call::trace() const {
  static constexpr TraceContext kNone{};
  return impl_.request().trace ? *impl_.request().trace : kNone;
}

Channel Call::caller() const {
  rpc::Engine& engine = impl_.connection().engine();
  auto lane = std::allocate_shared<rpc::ReverseLane>(detail::FrameAllocator<rpc::ReverseLane>(),
                                                     engine, ChannelOptions{},
                                                     Ref<rpc::Connection>(&impl_.connection()));
  return Channel(std::allocate_shared<detail::ChannelCore>(
      detail::FrameAllocator<detail::ChannelCore>(), engine.context().core->shared_from_this(),
      engine.index(), std::move(lane), impl_.connection().peer_address()));
}

}  // namespace pawl
