// SPDX-License-Identifier: Apache-2.0
#include "tcp/pawl_peer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace pawl::rpc::test {

namespace tcp = fabric::tcp;

Bytes raw_frame(FrameType type, std::uint64_t call, std::span<const std::byte> body,
                std::uint8_t flags) {
  Bytes bytes(FrameHeader::kBytes + body.size());
  FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.call = call;
  header.attempt = call == 0 ? 0 : 1;
  header.bytes = static_cast<std::uint32_t>(body.size());
  encode(header, bytes);
  std::copy(body.begin(), body.end(), bytes.begin() + FrameHeader::kBytes);
  return bytes;
}

Bytes request_frame(std::uint64_t call, const Method& method, std::span<const std::byte> payload) {
  Request request;
  request.method = method.hash;
  request.remaining_us = 60'000'000;
  request.payload = payload;
  request.payload_bytes = static_cast<std::uint32_t>(payload.size());
  Bytes body(encoded_bytes(request));
  encode(request, body);
  return raw_frame(FrameType::request, call, body);
}

Handshake PawlPeer::control_handshake() {
  Handshake handshake;
  handshake.incarnation = 0x1234;
  handshake.guards = guard_bit(Guard::verify);
  handshake.limits = {.receive_bytes = 8192,
                      .call_messages = 32,
                      .session_messages = 16,
                      .message_bytes_max = 1 << 20,
                      .read_depth = 16};
  handshake.node_name = "raw peer";
  return handshake;
}

Handshake PawlPeer::data_handshake() const {
  Handshake handshake = own_;
  handshake.kind = EndpointKind::data;
  handshake.epoch = answer_.epoch;
  handshake.connection = answer_.connection;
  handshake.connection_secret = answer_.connection_secret;
  handshake.role = DataRole::connecting_side_reads;
  handshake.endpoint_incarnation = 1;
  return handshake;
}

PawlPeer::PawlPeer(const std::string& address, const Handshake& handshake)
    : raw_(address), own_(handshake), own_bytes_(encode_handshake(handshake)) {
  raw_.say_greeting(tcp::GreetingKind::connect, static_cast<std::uint16_t>(own_bytes_.size()));
  raw_.say(own_bytes_);
}

std::uint64_t PawlPeer::transcript() const {
  return own_.kind == EndpointKind::data ? own_.endpoint_incarnation
                                         : handshake_transcript(own_bytes_, answer_bytes_);
}

Hello PawlPeer::right_hello() const {
  Hello hello;
  hello.epoch = own_.kind == EndpointKind::data ? own_.epoch : answer_.epoch;
  hello.incarnation = own_.incarnation;
  hello.transcript = transcript();
  return hello;
}

bool PawlPeer::has_credit(Class message_class) const {
  return message_class == Class::call
             ? calls_said_ - calls_returned_ < answer_.limits.call_messages
             : sessions_said_ - sessions_returned_ + 1 < answer_.limits.session_messages;
}

void PawlPeer::say(const std::vector<Bytes>& frames, Class message_class) {
  Bytes message(MessageHeader::kBytes);
  for (const Bytes& each : frames) message.insert(message.end(), each.begin(), each.end());
  MessageHeader header;
  header.message_class = message_class;
  header.frames = static_cast<std::uint16_t>(frames.size());
  header.bytes = static_cast<std::uint32_t>(message.size() - MessageHeader::kBytes);
  header.call_messages_returned = keep_call_credit_ ? 0 : calls_heard_;
  header.session_messages_returned = sessions_heard_;
  encode(header, message);
  ++(message_class == Class::call ? calls_said_ : sessions_said_);
  say_bytes(message);
}

void PawlPeer::say_bytes(std::span<const std::byte> message) {
  raw_.say_frame({.type = tcp::FrameType::message,
                  .length = static_cast<std::uint32_t>(message.size()),
                  .value = messages_heard_});
  raw_.say(message);
  messages_told_ = messages_heard_;
}

void PawlPeer::return_credit() {
  if (messages_told_ == messages_heard_) return;
  if (has_credit(Class::session)) {
    say({raw_frame(FrameType::credit, 0, {})}, Class::session);
  } else {
    raw_.say_frame({.type = tcp::FrameType::ack, .value = messages_heard_});
    messages_told_ = messages_heard_;
  }
}

void PawlPeer::turn() {
  raw_.turn();
  hear();
}

void PawlPeer::hear() {
  const std::vector<std::byte>& all = raw_.heard();
  if (!answered_) {
    if (all.size() < tcp::kGreetingBytes) return;
    std::uint16_t bytes = 0;
    std::memcpy(&bytes, all.data() + 14, sizeof bytes);
    if (all.size() < tcp::kGreetingBytes + bytes) return;
    answer_bytes_.assign(all.begin() + tcp::kGreetingBytes,
                         all.begin() + tcp::kGreetingBytes + bytes);
    answered_ = true;
    parsed_ = tcp::kGreetingBytes + bytes;
    if (bytes > 0) {
      Result<Handshake> answer = decode_handshake(answer_bytes_);
      EXPECT_TRUE(answer.ok()) << answer.status().to_string();
      if (answer.ok()) answer_ = *std::move(answer);
    }
  }
  while (all.size() >= parsed_ + tcp::kFrameBytes) {
    tcp::FrameHeader header;
    const auto rest = std::span(all).subspan(parsed_);
    ASSERT_EQ(tcp::decode_frame(rest.first<tcp::kFrameBytes>(), header), nullptr);
    const bool piece = header.type == tcp::FrameType::read_piece;
    const std::size_t body = header.length + (piece ? tcp::kTrailerBytes : 0);
    if (rest.size() < tcp::kFrameBytes + body) return;
    const auto bytes = rest.subspan(tcp::kFrameBytes, header.length);
    parsed_ += tcp::kFrameBytes + body;
    if (header.type == tcp::FrameType::message) hear_message(bytes);
    if (!piece) continue;
    tcp::Trailer trailer;
    ASSERT_EQ(
        tcp::decode_trailer(
            rest.subspan(tcp::kFrameBytes + header.length).first<tcp::kTrailerBytes>(), trailer),
        nullptr);
    pieces_.push_back(trailer.status);
    read_bytes_.insert(read_bytes_.end(), bytes.begin(), bytes.end());
  }
}

void PawlPeer::hear_message(std::span<const std::byte> message) {
  ++messages_heard_;
  MessageHeader header;
  const char* why = nullptr;
  ASSERT_TRUE(decode(message, header, why)) << why;
  ++(header.message_class == Class::call ? calls_heard_ : sessions_heard_);
  calls_returned_ = header.call_messages_returned;
  sessions_returned_ = header.session_messages_returned;
  std::span<const std::byte> rest = message.subspan(MessageHeader::kBytes);
  while (!rest.empty()) {
    Heard heard;
    std::span<const std::byte> body;
    ASSERT_TRUE(next_frame(rest, heard.header, body, why)) << why;
    heard.body.assign(body.begin(), body.end());
    heard_.push_back(std::move(heard));
  }
}

bool PawlPeer::take(FrameType type, Heard& out) {
  const auto found = std::find_if(heard_.begin(), heard_.end(),
                                  [type](const Heard& each) { return each.header.type == type; });
  if (found == heard_.end()) return false;
  out = std::move(*found);
  heard_.erase(found);
  return true;
}

}  // namespace pawl::rpc::test
