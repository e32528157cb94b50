// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fuzz/grammar.h"
#include "fuzz/input.h"
#include "pawl/task.h"
#include "support/function_service.h"

/// What the node of the connection target serves: handlers that lend, pull and call back, each as
/// the first byte of its request says.
namespace pawl::fuzz {

inline constexpr std::size_t kLentBytes = 8192;  // more than travels inline
inline constexpr std::size_t kPullBytesMax = 16384;

inline Task<Result<Payload>> get(Call& call, std::uint8_t kind, std::vector<Block>* kept,
                                 Download& out) {
  for (unsigned i = 0; i < kind % 4u; ++i) {
    auto buffer = co_await ok(call.pool().acquire(i == 1 ? 100 : kLentBytes));
    Block block = std::move(buffer).freeze();
    if ((kind & 8) != 0) kept->push_back(block);
    out.add(std::move(block));
  }
  if ((kind & 16) != 0) out.add(Status(Code::not_found, "the target has no such segment"));
  if ((kind & 32) != 0) co_return Status(Code::failed_precondition, "after all not");
  co_return Payload((kind & 64) != 0 ? std::size_t{5000} : std::size_t{0});
}

inline Task<Result<Payload>> put(Call& call, std::uint8_t kind, Upload& in) {
  constexpr ByteRange kSome{0, kPullBytesMax};
  switch (kind % 6) {
    case 0:
      (void)co_await ok(in.pull(call.pool(), kSome));
      break;
    case 1: {
      (void)co_await ok(in.pull_unconfirmed(call.pool(), kSome));
      (void)co_await ok(in.pull_unconfirmed(call.pool(), ByteRange{1, 4096}));
      (void)co_await ok(in.confirm());
      break;
    }
    case 2:
      (void)co_await ok(in.pull_segment(1, call.pool(), kSome));
      break;
    case 3: {  // one that is dropped while it runs, and one more
      auto pull = pawl::start(in.pull(call.pool(), kSome),
                              Callback<Result<Buffer>>{[](void*, Result<Buffer>) {}, nullptr});
      (void)co_await in.pull(call.pool(), ByteRange{100, 100});
      break;
    }
    case 4:
      (void)co_await call.on_cancelled();
      break;
    default:
      (void)co_await call.caller().call(kEcho, Payload(10), CallOptions{.deadline = 1s});
  }
  co_return Payload(in.segments());
}

class Services {
 public:
  Services() {
    service_.add(kEcho, echo).add(kNote, echo);
    service_.add(kGet, [this](Call& call, Input request, Upload&, Download& out) {
      return get(call, Splitter(request).u8(), &kept_, out);
    });
    service_.add(kPut, [](Call& call, Input request, Upload& in, Download&) {
      return put(call, Splitter(request).u8(), in);
    });
  }
  [[nodiscard]] Service& service() { return service_; }
  std::vector<Block>& kept() { return kept_; }

 private:
  static Task<Result<Payload>> echo(Call&, Input request, Upload&, Download&) {
    co_return Payload(request);
  }

  std::vector<Block> kept_;
  testing::FunctionService service_;
};

}  // namespace pawl::fuzz
