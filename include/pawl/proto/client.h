// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "pawl/bulk.h"
#include "pawl/call.h"
#include "pawl/channel.h"
#include "pawl/operation.h"
#include "pawl/proto/codec.h"
#include "pawl/service.h"

// What generated clients are made of: an untyped call whose answer is decoded on its way.
namespace pawl::proto {

namespace detail {

template <class C, class Reply>
Result<Reply> decode_answer(const Method& method, Payload& answer) {
  Reply reply;
  Status status = C::decode(method, Role::reply, std::as_const(answer).bytes(), reply);
  if (!status.ok()) return status;
  return reply;
}
template <class C, class Reply>
Result<Pulled<Reply>> decode_answer(const Method& method, Pulled<Payload>& answer) {
  Result<Reply> reply = decode_answer<C, Reply>(method, answer.reply());
  if (!reply.ok()) return reply.status();
  return Pulled<Reply>(*std::move(reply), std::move(answer).take_parts());
}

/// The untyped call inside, From = Payload or Pulled<Payload>, and what it becomes.
template <class C, class Reply, class From>
class TypedCall final
    : public OperationState<
          Outcome<std::conditional_t<std::is_same_v<From, Payload>, Reply, Pulled<Reply>>>> {
  using To = std::conditional_t<std::is_same_v<From, Payload>, Reply, Pulled<Reply>>;

 public:
  TypedCall(const Method& method, Operation<Outcome<From>> call) noexcept
      : method_(method), call_(std::move(call)) {}

 private:
  void on_begin() override { call_.begin(Callback<Outcome<From>>{&TypedCall::done, this}); }
  void on_drop() noexcept override { call_.reset(); }

  static void done(void* context, Outcome<From> answer) {
    auto* self = static_cast<TypedCall*>(context);
    Result<To> result =
        answer.ok() ? decode_answer<C, Reply>(self->method_, *answer) : Result<To>(answer.status());
    self->complete(std::move(answer).with(std::move(result)));
  }

  const Method& method_;
  Operation<Outcome<From>> call_;
};

template <class C, class Reply, class From>
auto typed(const Method& method, Operation<Outcome<From>> call) {
  return make_operation<TypedCall<C, Reply, From>>(method, std::move(call));
}

}  // namespace detail

/// A call without bulk data. The request is encoded here and now, so it need not outlive this
/// function; the call itself starts when the operation does. A request that cannot be encoded makes
/// an operation that fails. `method` lives as long as the operation (generated ones always do).
template <class Reply, class C = Protobuf, class Request>
requires(Codec<C, Request>&& Codec<C, Reply>) Operation<Outcome<Reply>> call(
    const Channel& channel, const Method& method, const Request& request,
    const CallOptions& options) {
  Result<Payload> encoded = C::encode(method, Role::request, request);
  if (!encoded.ok()) return Operation<Outcome<Reply>>::ready(encoded.status());
  return detail::typed<C, Reply>(method, channel.call(method, *std::move(encoded), options));
}

/// A call that lends its bulk data to the handler.
template <class Reply, class C = Protobuf, class Request>
requires(Codec<C, Request>&& Codec<C, Reply>) Operation<Outcome<Reply>> call(
    const Channel& channel, const Method& method, const Request& request, Lend lend,
    const CallOptions& options) {
  Result<Payload> encoded = C::encode(method, Role::request, request);
  if (!encoded.ok()) return Operation<Outcome<Reply>>::ready(encoded.status());
  return detail::typed<C, Reply>(
      method, channel.call(method, *std::move(encoded), std::move(lend), options));
}

/// A call that pulls bulk data from the handler.
template <class Reply, class C = Protobuf, class Request>
requires(Codec<C, Request>&& Codec<C, Reply>) Operation<Outcome<Pulled<Reply>>> call(
    const Channel& channel, const Method& method, const Request& request, Into into,
    const CallOptions& options) {
  Result<Payload> encoded = C::encode(method, Role::request, request);
  if (!encoded.ok()) return Operation<Outcome<Pulled<Reply>>>::ready(encoded.status());
  return detail::typed<C, Reply>(
      method, channel.call(method, *std::move(encoded), std::move(into), options));
}

/// A message that is not answered.
template <class C = Protobuf, class Request>
requires Codec<C, Request> Operation<Status> send(const Channel& channel, const Method& method,
                                                  const Request& request,
                                                  const CallOptions& options) {
  Result<Payload> encoded = C::encode(method, Role::request, request);
  if (!encoded.ok()) return Operation<Status>::ready(encoded.status());
  return channel.send(method, *std::move(encoded), options);
}

}  // namespace pawl::proto
