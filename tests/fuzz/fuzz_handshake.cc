// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as the hello of an endpoint.
#include "fabric/fabric.h"
#include "fuzz/input.h"
#include "rpc/handshake.h"

namespace pawl::fuzz {
namespace {

constexpr std::size_t kSentenceBytesMax = 256;

void require_same(const rpc::Handshake& a, const rpc::Handshake& b) {
  require(a.minor == b.minor && a.kind == b.kind && a.incarnation == b.incarnation &&
              a.epoch == b.epoch && a.guards == b.guards && a.node_name == b.node_name &&
              a.auth_method == b.auth_method && a.auth == b.auth,
          "a handshake means the same after encode and decode");
  require(a.limits.receive_bytes == b.limits.receive_bytes &&
              a.limits.call_messages == b.limits.call_messages &&
              a.limits.session_messages == b.limits.session_messages &&
              a.limits.message_bytes_max == b.limits.message_bytes_max &&
              a.limits.read_depth == b.limits.read_depth,
          "the limits of a handshake are the same after encode and decode");
  require(a.refusal.code() == b.refusal.code() && a.refusal.ran() == b.refusal.ran() &&
              a.refusal.native() == b.refusal.native() && a.refusal.what() == b.refusal.what(),
          "a refusal is the same after encode and decode");
  if (a.kind == rpc::EndpointKind::control && a.connection == 0) return;  // names no connection
  require(a.connection == b.connection && a.connection_secret == b.connection_secret &&
              a.role == b.role && a.endpoint_index == b.endpoint_index &&
              a.endpoint_incarnation == b.endpoint_incarnation,
          "the connection of a handshake is the same after encode and decode");
}

void require_within_limits(const rpc::Handshake& got) {
  require(got.node_name.size() <= rpc::kNodeNameBytesMax, "a node's name is within its limit");
  require(got.auth.size() <= rpc::kAuthBytesMax, "an authentication blob is within its limit");
  require(got.refusal.what().size() <= rpc::kMessageTextBytesMax, "a text is within its limit");
  if (!got.refusal.ok() || got.kind == rpc::EndpointKind::data) return;
  require(got.limits.receive_bytes >= rpc::kReceiveBytesMin && got.limits.call_messages > 0 &&
              got.limits.session_messages >= rpc::kSessionMessagesMin,
          "a control handshake that is accepted has usable limits");
}

}  // namespace

void handshake(Input input) {
  const Exact exact(input);
  const Result<rpc::Handshake> got = rpc::decode_handshake(exact.bytes());
  if (!got.ok()) {
    const Code code = got.status().code();
    require(code == Code::protocol_error || code == Code::unimplemented,
            "a handshake is refused with protocol_error or unimplemented");
    require(!got.status().what().empty() && got.status().what().size() <= kSentenceBytesMax,
            "a refused handshake says why, in one sentence");
    return;
  }
  require_within_limits(*got);
  const std::vector<std::byte> again = rpc::encode_handshake(*got);
  require(again.size() <= fabric::kHelloBytesMax, "a handshake fits into what a fabric carries");
  const Exact exact_again(again);
  const Result<rpc::Handshake> twice = rpc::decode_handshake(exact_again.bytes());
  require(twice.ok(), "what a handshake encodes to is accepted");
  require_same(*got, *twice);
  require(equal(again, rpc::encode_handshake(*twice)), "a handshake has one encoding");
}

}  // namespace pawl::fuzz
