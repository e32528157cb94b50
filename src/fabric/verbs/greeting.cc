// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/greeting.h"

#include <algorithm>

#include "base/bytes.h"
#include "fabric/fabric.h"

namespace pawl::fabric::verbs {
namespace {

constexpr std::uint32_t kBits24 = 0xffffff;

/// What only request and accept have.
const char* check_queue_pair(const Greeting& greeting) {
  if (greeting.mtu < 1 || greeting.mtu > 5) return "its MTU is none that InfiniBand knows";
  if (greeting.qp_number == 0 || greeting.qp_number > kBits24) {
    return "its queue pair number is not one of 24 bits";
  }
  if (greeting.psn > kBits24) return "its packet sequence number has more than 24 bits";
  if (greeting.read_initiator == 0 || greeting.read_responder == 0) {
    return "one of its READ depths is zero";
  }
  const bool no_gid = std::all_of(greeting.gid.begin(), greeting.gid.end(),
                                  [](std::uint8_t byte) { return byte == 0; });
  if (greeting.link_layer == LinkLayer::ethernet && no_gid) return "it has no GID";
  if (greeting.link_layer == LinkLayer::infiniband && no_gid && greeting.lid == 0) {
    return "it has neither LID nor GID";
  }
  return nullptr;
}

}  // namespace

void encode_greeting(const Greeting& greeting, std::span<std::byte, kGreetingBytes> out) {
  Writer to(out);
  to.u64(kMagic);
  to.u16(kVersionMajor);
  to.u16(kVersionMinor);
  to.u8(static_cast<std::uint8_t>(greeting.kind));
  to.u8(static_cast<std::uint8_t>(greeting.link_layer));
  to.u8(greeting.mtu);
  to.u8(static_cast<std::uint8_t>(greeting.reason));
  to.u64(greeting.attempt);
  to.u32(greeting.qp_number);
  to.u32(greeting.psn);
  to.u16(greeting.read_initiator);
  to.u16(greeting.read_responder);
  to.u16(greeting.lid);
  to.u16(greeting.hello_bytes);
  to.bytes(std::as_bytes(std::span(greeting.gid)));
  to.zeros(to.remaining());
}

const char* decode_greeting(std::span<const std::byte, kGreetingBytes> in, Greeting& out) {
  Reader from(in);
  if (from.u64() != kMagic) return "it does not speak the bootstrap of Pawl's verbs fabric";
  if (from.u16() != kVersionMajor) return "it speaks another major version of the bootstrap";
  from.skip(2);
  const std::uint8_t kind = from.u8();
  const std::uint8_t link_layer = from.u8();
  out.mtu = from.u8();
  const std::uint8_t reason = from.u8();
  out.attempt = from.u64();
  out.qp_number = from.u32();
  out.psn = from.u32();
  out.read_initiator = from.u16();
  out.read_responder = from.u16();
  out.lid = from.u16();
  out.hello_bytes = from.u16();
  const std::span<const std::byte> gid = from.bytes(out.gid.size());
  std::transform(gid.begin(), gid.end(), out.gid.begin(),
                 [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  if (kind < 1 || kind > 5) return "a word of its bootstrap is of an unknown kind";
  out.kind = static_cast<GreetingKind>(kind);
  out.reason = reason <= 2 ? static_cast<EndReason>(reason) : EndReason::failed;
  if (out.hello_bytes > kHelloBytesMax) return "its hello is larger than 4096 bytes";
  const bool has_hello = out.kind != GreetingKind::ready && out.kind != GreetingKind::end;
  if (!has_hello && out.hello_bytes != 0) return "its last word has a hello, which none has";
  if (out.kind != GreetingKind::request && out.kind != GreetingKind::accept) return nullptr;
  if (link_layer < 1 || link_layer > 2) return "its link layer is unknown";
  out.link_layer = static_cast<LinkLayer>(link_layer);
  return check_queue_pair(out);
}

}  // namespace pawl::fabric::verbs
