// SPDX-License-Identifier: Apache-2.0
#include "fuzz/one_call.h"

#include "fuzz/peer.h"

namespace pawl::fuzz {

using namespace rpc;  // NOLINT: the frames around the payload

namespace {
constexpr std::size_t kPayloadBytesMax = 1500;  // of one message
Input cut(Input bytes) { return bytes.first(std::min(bytes.size(), kPayloadBytesMax)); }
}  // namespace

Served serve_one(Service& service, const Method& method, Input request) {
  Bench bench;
  bench.serve(service);
  Peer peer(bench, usual_offer());
  peer.say_hello();
  Request body;
  body.method = method.hash;
  body.remaining_us = UINT64_MAX;
  body.one_way = method.one_way;
  body.payload = cut(request);
  body.payload_bytes = static_cast<std::uint32_t>(body.payload.size());
  peer.say(FrameType::request, 1, body);
  Served served;
  served.connection_over = peer.over();
  if (const auto response = peer.heard_body<Response>(FrameType::response)) {
    served.status =
        Status::with_detail(response->code, std::string(response->message), response->ran);
  }
  return served;
}

void call_one(const std::function<Started(const Channel&)>& make, Input reply) {
  Bench bench;
  const Channel channel = bench.node().channel("peer");
  Started call;
  {
    const Poller::Scope scope(bench.node().poller());
    call = make(channel);
  }
  bench.turn();
  require(bench.fabric().connecting.size() == 1, "a call connects");
  Handshake offer = usual_offer();
  offer.epoch = 0xe90c;
  offer.connection = 1;
  Peer peer(bench, bench.fabric().connecting[0], bench.fabric().connects[0], offer);
  peer.say_hello();
  const auto request = peer.heard(FrameType::request);
  require(request.has_value(), "a call goes out");
  Response response;
  response.payload = cut(reply);
  response.payload_bytes = static_cast<std::uint32_t>(response.payload.size());
  peer.say(FrameType::response, request->header.call, response);
}

}  // namespace pawl::fuzz
