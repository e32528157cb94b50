// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/list.h"
#include "bulk/puller.h"
#include "memory/landing.h"
#include "pawl/call.h"
#include "pawl/detail/ref.h"
#include "pawl/operation.h"

namespace pawl::detail {
class ServerCall;
}

namespace pawl::rpc {

using detail::ServerCall;
using Pieces = detail::FrameVector<bulk::RemotePiece>;

/// One pull of an upload, whatever it lands in: finds the bytes, gets landing memory, READs, has
/// the caller confirm. It stands on its call's list so that the end of the call ends it. A pull
/// that is dropped or cancelled leaves its landing memory to the record of its READs.
class PullBase : public ListNode<>, public bulk::PullListener {
 public:
  /// The call is over: completes with `why`.
  void call_over(const Status& why);

 protected:
  explicit PullBase(ServerCall& call);
  ~PullBase();

  /// Pulls `range` of the joined segments [first, first + count) into a buffer of `pool`.
  void pull_from_pool(Pool& pool, std::size_t first, std::size_t count, ByteRange range);
  void pull_into_region(const Region& region, std::size_t offset, ByteRange range);
  /// The check for what lies in the call's `unconfirmed`.
  void check_unconfirmed();
  void set_hold_check() { hold_check_ = true; }
  /// Nobody waits any more.
  void let_go() noexcept;

  /// The end: the landing memory of a good pull (its bytes checked, or with hold_check not yet).
  virtual void pull_over(Result<memory::Landings> landing) = 0;

  [[nodiscard]] ServerCall& call() { return *call_; }
  /// What it pulled of the peer's.
  [[nodiscard]] const Pieces& pieces() const { return remote_; }

 private:
  Status check_call() const;
  Status check(std::size_t first, std::size_t count, ByteRange range);
  Status find_bytes(std::size_t first, std::size_t count, ByteRange range);
  void land(memory::Landing landing);
  void copy_inline(memory::Landing& landing);
  void start_reads(memory::Landing landing);
  bulk::PullSpec spec() const;
  void over(Result<memory::Landings> landing);
  static void on_buffers(void* pull, Result<detail::FrameVector<Buffer>> buffers);
  static void on_drained(void* call, memory::Landings landing);
  void pull_done(bulk::TransferId transfer, bulk::PullResult result) override;

  Ref<ServerCall> call_;
  Pieces remote_;
  detail::FrameVector<std::span<const std::byte>> inline_;
  std::uint64_t bytes_ = 0;
  bool hold_check_ = false;
  bool over_ = false;
  Started acquiring_;
  std::optional<bulk::TransferId> transfer_;
};

}  // namespace pawl::rpc
