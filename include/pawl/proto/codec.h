// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pawl/payload.h"
#include "pawl/result.h"
#include "pawl/service.h"
#include "pawl/status.h"

namespace google::protobuf {
class MessageLite;
}

namespace pawl::proto {

/// Which of the two messages of a method: what an error names.
enum class Role : std::uint8_t { request, reply };

/// How messages of type M become bytes and back. The functions take the method and the role so that
/// their errors can say whose message it was. Any thread.
template <class C, class M>
concept Codec = std::default_initializable<M> && std::movable<M> &&
    requires(const Method& method, Role role, const M& from, M& to,
             std::span<const std::byte> bytes) {
  { C::encode(method, role, from) } -> std::same_as<Result<Payload>>;
  { C::decode(method, role, bytes, to) } -> std::same_as<Status>;
};

/// The codec of generated services: protobuf's binary format.
class Protobuf {
 public:
  /// Serialises straight into the payload, no string in between. Fails with invalid_argument if a
  /// required field (proto2) is not set, too_large above 2 GiB. A reply that cannot be encoded is
  /// the handler's fault: internal.
  static Result<Payload> encode(const Method& method, Role role,
                                const google::protobuf::MessageLite& from);

  /// Replaces `to`. Fails with a sentence that names the method, the message type and where the
  /// bytes stop making sense: invalid_argument for a request, internal for a reply (its handler
  /// ran). What `to` holds then is not specified.
  static Status decode(const Method& method, Role role, std::span<const std::byte> bytes,
                       google::protobuf::MessageLite& to);
};

/// Where and how the bytes stop being protobuf's binary format, as part of a sentence; looks at the
/// outermost message only. For error texts.
[[nodiscard]] std::string describe_malformed(std::span<const std::byte> bytes);

}  // namespace pawl::proto
