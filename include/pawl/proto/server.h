// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "pawl/call.h"
#include "pawl/operation.h"
#include "pawl/payload.h"
#include "pawl/proto/codec.h"
#include "pawl/result.h"
#include "pawl/service.h"
#include "pawl/task.h"

// What generated services are made of: from bytes to a handler and back.
namespace pawl::proto {

namespace detail {

/// A handler that runs: keeps the request alive for it and encodes its reply. Answer is
/// Result<Reply>, or Status where there is no reply.
template <class C, class Request, class Answer>
class RunningHandler final : public OperationState<Result<Payload>> {
 public:
  explicit RunningHandler(const Method& method) noexcept : method_(method) {}

  [[nodiscard]] Request& request() noexcept { return request_; }
  void set_handler(Operation<Answer> handler) noexcept { handler_ = std::move(handler); }

 private:
  void on_begin() override { handler_.begin(Callback<Answer>{&RunningHandler::done, this}); }
  void on_drop() noexcept override { handler_.reset(); }

  static void done(void* context, Answer answer) {
    auto* self = static_cast<RunningHandler*>(context);
    self->complete(encode(self->method_, answer));
  }
  static Result<Payload> encode(const Method& method, Answer& answer) {
    if constexpr (std::is_same_v<Answer, Status>) {
      if (!answer.ok()) return std::move(answer).with_ran(Ran::yes);
      return Payload();
    } else {
      if (!answer.ok()) return answer.status().with_ran(Ran::yes);
      Result<Payload> encoded = C::encode(method, Role::reply, *answer);
      if (!encoded.ok()) return encoded.status().with_ran(Ran::yes);
      return encoded;
    }
  }

  const Method& method_;
  Request request_;
  Operation<Answer> handler_;  // below the request: it ends first
};

}  // namespace detail

/// Decodes a request and makes the operation that runs a handler of `service` on it. A request that
/// is no valid message fails before the handler (invalid_argument, ran: no). An exception of the
/// handler becomes handler_threw.
template <class C = Protobuf, class S, class Answer, class Request, class... Bulk>
requires Codec<C, Request> Operation<Result<Payload>> serve(
    const Method& method, S& service, Task<Answer> (S::*handler)(Call&, const Request&, Bulk&...),
    Call& call, std::span<const std::byte> bytes, Bulk&... bulk) {
  using Running = detail::RunningHandler<C, Request, Answer>;
  auto running = Ref<Running>::adopt(new Running(method));
  Status status = C::decode(method, Role::request, bytes, running->request());
  if (!status.ok()) {
    call.not_run();
    return Operation<Result<Payload>>::ready(std::move(status));
  }
  try {
    running->set_handler((service.*handler)(call, running->request(), bulk...).operation());
  } catch (...) {  // an override that is no coroutine
    return Operation<Result<Payload>>::ready(pawl::detail::status_of_exception());
  }
  return Operation<Result<Payload>>(running.detach());
}

/// What generated services answer to an index that is none of theirs.
Operation<Result<Payload>> no_such_method(std::size_t index);

}  // namespace pawl::proto
