// SPDX-License-Identifier: Apache-2.0
#include "fuzz/grammar.h"

#include "fuzz/peer.h"
#include "rpc/wire_recovery.h"

namespace pawl::fuzz {
namespace {

using namespace rpc;  // NOLINT: the frames that are made

constexpr Guard kGuards[] = {Guard::verify, Guard::verify,      Guard::verify, Guard::verify,
                             Guard::verify, Guard::verify_read, Guard::window, Guard::none};
constexpr Code kCodes[] = {Code::ok, Code::ok,       Code::ok,        Code::ok,
                           Code::ok, Code::deadline, Code::not_found, Code::stale};

std::uint64_t call_id(Splitter& in, const Knowledge& known) {
  const unsigned which = in.below(16);
  if (which < 8) return which;
  if (which == 8 || known.calls.empty()) return in.any();
  return known.calls[known.calls.size() - 1 - which % known.calls.size()];
}

LeaseName lease_name(Splitter& in, const std::vector<LeaseName>& names) {
  const unsigned which = in.below(16);
  if (which == 0 || names.empty()) return {in.any(), in.any()};
  LeaseName name = names[names.size() - 1 - which % names.size()];
  if (which == 1) name.generation += in.below(4);
  return name;
}

std::uint64_t epoch(Splitter& in, const Knowledge& known) {
  return in.below(16) == 0 ? in.any() : known.epoch;
}

/// What a peer lends: mostly what its guard and bytes allow.
struct Lent {
  LeaseDescriptor lease;
  std::vector<std::byte> segments;
  std::size_t inline_bytes = 0;
};

SegmentDescriptor segment(Splitter& in, Guard guard, Lent& lent) {
  SegmentDescriptor made;
  switch (in.below(6)) {
    case 0:
      made.inline_bytes = true;
      made.length = 1 + in.below(64);
      lent.inline_bytes += made.length;
      break;
    case 1:
      if (in.coin()) made.code = Code::not_found;
      break;
    default: {
      constexpr std::uint64_t kLengths[] = {1, 4096, 20'000, 100'000};
      const bool window = guard == Guard::window || guard == Guard::window_verify;
      made.kind = window ? KeyKind::window : KeyKind::region;
      made.length = in.below(16) == 0 ? in.any() : in.pick(kLengths);
      made.key = 77;
      made.address = in.below(16) == 0 ? in.any() : 4096;
    }
  }
  return made;
}

Lent lend(Splitter& in) {
  Lent lent;
  lent.lease.lease = {1 + in.below(4), 2 * in.below(4) + 1};
  lent.lease.guard = in.pick(kGuards);
  lent.lease.segments = static_cast<std::uint16_t>(in.below(16) == 0 ? in.u8() : in.below(4));
  lent.segments.resize(lent.lease.segments * SegmentDescriptor::kBytes);
  bool keys = false;
  for (std::size_t i = 0; i < lent.lease.segments; ++i) {
    const SegmentDescriptor made = segment(in, lent.lease.guard, lent);
    keys = keys || made.kind != KeyKind::none;
    encode(made, std::span(lent.segments).subspan(i * SegmentDescriptor::kBytes));
  }
  if (!keys) lent.lease.lease.generation = 0;
  return lent;
}

std::vector<std::byte> request(Splitter& in) {
  constexpr std::uint64_t kMethods[] = {kEcho.hash, kGet.hash, kGet.hash,  kPut.hash,
                                        kPut.hash,  kPut.hash, kNote.hash, 12345};
  constexpr std::uint64_t kRemaining[] = {UINT64_MAX, UINT64_MAX, 1'000'000,
                                          1'000,      0,          UINT64_MAX - 1};
  Request made;
  made.method = in.pick(kMethods);
  made.remaining_us = in.pick(kRemaining);
  made.priority = Priority{static_cast<std::uint8_t>(in.below(3))};
  made.one_way = in.below(16) == 0;
  if (in.below(16) == 0) made.trace.emplace();
  std::vector<std::byte> metadata;
  if (in.below(16) == 0) {
    const Metadata entry{"k", "v"};
    metadata.resize(metadata_encoded_bytes({&entry, 1}));
    encode_metadata({&entry, 1}, metadata);
  }
  made.metadata = metadata;
  Lent lent;
  if (in.coin()) {
    lent = lend(in);
    made.lease = lent.lease;
    made.segments = lent.segments;
  }
  const Input own = in.bytes(in.below(24));
  std::vector<std::byte> payload(own.begin(), own.end());
  if (in.below(16) == 0) payload.resize(std::size_t{64} * in.u8());
  payload.resize(payload.size() + lent.inline_bytes);
  made.payload = payload;
  made.payload_bytes = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> bytes(encoded_bytes(made));
  encode(made, bytes);
  return bytes;
}

std::vector<std::byte> response(Splitter& in) {
  Response made;
  made.code = in.pick(kCodes);
  made.ran = Ran{static_cast<std::uint8_t>(in.below(3))};
  if (made.code != Code::ok) made.message = "why";
  Lent lent;
  if (in.coin()) {
    lent = lend(in);
    made.lease = lent.lease;
    made.segments = lent.segments;
  }
  const Input own = in.bytes(in.below(24));
  std::vector<std::byte> payload(own.begin(), own.end());
  payload.resize(payload.size() + lent.inline_bytes);
  made.payload = payload;
  made.payload_bytes = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> bytes(encoded_bytes(made));
  encode(made, bytes);
  return bytes;
}

/// The next part of the body that is under way; the first one is the beginning of a new body.
std::vector<std::byte> part(Splitter& in, Knowledge& known, FrameHeader& header) {
  if (known.body_sent < known.body.size()) {
    header = known.body_header;
    if (header.type == FrameType::response) header.flags |= kFrameResponse;
    header.type = FrameType::fragment;
  } else {
    header.type = in.coin() ? FrameType::request : FrameType::response;
    known.body = header.type == FrameType::request ? request(in) : response(in);
    known.body_sent = 0;
    known.body_header = header;
  }
  Fragment piece;
  const std::size_t left = known.body.size() - known.body_sent;
  const std::size_t bytes = std::min<std::size_t>(1 + in.u8(), left);
  piece.offset = static_cast<std::uint32_t>(known.body_sent);
  piece.body_bytes = static_cast<std::uint32_t>(known.body.size());
  piece.bytes = Input(known.body).subspan(known.body_sent, bytes);
  known.body_sent += bytes;
  if (bytes < left) header.flags |= kFrameMore;
  return body_bytes(piece);
}

std::vector<std::byte> lease_frame(Splitter& in, const Knowledge& known, FrameType type) {
  if (type == FrameType::confirm) {
    Confirm made;
    made.lease = lease_name(in, known.leases);
    made.epoch = epoch(in, known);
    made.release = in.coin();
    return body_bytes(made);
  }
  if (type == FrameType::release) {
    return body_bytes(Release{lease_name(in, known.leases), epoch(in, known)});
  }
  ConfirmAnswer made;
  made.lease = lease_name(in, known.asked);
  made.valid = in.coin();
  if (in.below(4) == 0) made.bitmap = in.bytes(in.below(128));
  return body_bytes(made);
}

std::vector<std::byte> other(Splitter& in, FrameType type) {
  switch (type) {
    case FrameType::cancel:
      return body_bytes(Cancel{in.coin() ? Code::deadline : Code::cancelled});
    case FrameType::cancel_ack:
      return body_bytes(CancelAck{Ran{static_cast<std::uint8_t>(in.below(3))}});
    case FrameType::ping:
    case FrameType::pong:
      return body_bytes(Ping{in.any()});
    case FrameType::goaway:
      return body_bytes(Goaway{in.any()});
    case FrameType::data_lost:
      return body_bytes(DataLost{0, DataRole{static_cast<std::uint8_t>(in.below(2))}, in.below(4)});
    case FrameType::data_lost_answer:
      return body_bytes(DataLostAnswer{});
    case FrameType::relend:
      return body_bytes(Relend{});
    case FrameType::hello:
      return body_bytes(Hello{in.any(), in.any(), in.any(), {}});
    default:
      return {};
  }
}

}  // namespace

MadeFrame make_frame(Splitter& in, Knowledge& known) {
  constexpr FrameType kTypes[] = {
      FrameType::request,          FrameType::request,        FrameType::request,
      FrameType::request,          FrameType::response,       FrameType::response,
      FrameType::response,         FrameType::fragment,       FrameType::confirm,
      FrameType::confirm,          FrameType::release,        FrameType::release,
      FrameType::confirm_answer,   FrameType::cancel,         FrameType::cancel,
      FrameType::cancel_ack,       FrameType::ping,           FrameType::pong,
      FrameType::credit,           FrameType::goaway,         FrameType::data_lost,
      FrameType::data_lost_answer, FrameType::relend,         FrameType::hello,
      FrameType::fragment,         FrameType::confirm_answer, FrameType::goaway_ack};
  MadeFrame made;
  FrameHeader& header = made.header;
  header.type = in.pick(kTypes);
  header.call = call_id(in, known);
  header.attempt = static_cast<std::uint16_t>(in.below(16) == 0 ? in.u8() : 1);
  std::vector<std::byte> body;
  switch (header.type) {
    case FrameType::request:
      body = request(in);
      break;
    case FrameType::response:
      body = response(in);
      break;
    case FrameType::fragment:
      body = part(in, known, header);
      break;
    case FrameType::confirm:
    case FrameType::release:
    case FrameType::confirm_answer:
      body = lease_frame(in, known, header.type);
      break;
    default:
      body = other(in, header.type);
  }
  made.bytes = frame_bytes(header, body);
  return made;
}

}  // namespace pawl::fuzz
