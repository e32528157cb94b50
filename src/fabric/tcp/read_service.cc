// SPDX-License-Identifier: Apache-2.0
// The side of a READ whose memory is read. READs are served in the order of their arrival, in
// pieces of one chunk, each looked up anew: a key that died is noticed at the next system call,
// and what it opened is not touched any more.
#include <algorithm>
#include <optional>

#include "fabric/tcp/endpoint.h"

namespace pawl::fabric::tcp {

/// Puts the frame that the socket has begun first. False if its key has died on the way.
bool Endpoint::resume_current(Plan& plan, MemoryTable::Sampling* sampling) {
  if (!has_current_) return true;
  OutFrame& frame = plan.frames[plan.frame_count++];
  frame = current_;
  MemoryTable::Readable memory;
  if (frame.type == FrameType::read_piece && frame.sent < frame.head_bytes + frame.body_bytes) {
    const ServedRead& read = service_.ring[service_.head];
    if (!sampling->resolve(id_, options_.group, read.key, read.address, read.length, memory)) {
      refuse_read();
      return false;
    }
    memory.address += read.sent;
  }
  gather(plan, frame, memory.address, memory.kind);
  return true;
}

/// Adds pieces behind the messages. False if the READ at the front is refused.
bool Endpoint::plan_pieces(Plan& plan, MemoryTable::Sampling& sampling) {
  const std::uint32_t piece_bytes = std::min(kPieceBytesMax, peer_limits_.piece_bytes_max);
  for (std::uint64_t at = service_.head; at != service_.tail; ++at) {
    const ServedRead& read = service_.ring[at];
    std::uint32_t offset = read.sent;
    if (at == service_.head && has_current_ && current_.type == FrameType::read_piece) {
      offset += current_.body_bytes;
    }
    while (offset < read.length) {
      if (!plan.room() || plan.bytes >= kFlushBytesMax) return true;
      MemoryTable::Readable memory;
      if (!sampling.resolve(id_, options_.group, read.key, read.address, read.length, memory)) {
        // What stands before the refusal goes out first, in a turn of its own.
        if (plan.frame_count != 0) return true;
        refuse_read();
        return false;
      }
      OutFrame& frame = plan.frames[plan.frame_count++];
      frame = OutFrame{};
      frame.type = FrameType::read_piece;
      frame.body_bytes = std::min(piece_bytes, read.length - offset);
      frame.trailer_bytes = kTrailerBytes;
      encode_frame({.type = frame.type, .length = frame.body_bytes, .value = read.id},
                   std::span(frame.head).first<kFrameBytes>());
      encode_trailer({.read_id_low = static_cast<std::uint32_t>(read.id)}, frame.trailer);
      gather(plan, frame, memory.address + offset, memory.kind);
      offset += frame.body_bytes;
    }
  }
  return true;
}

/// The READ at the front ends here, and the endpoint with it, as on a reliable connection.
void Endpoint::refuse_read() {
  const ServedRead& read = service_.ring[service_.head];
  const bool begun = has_current_ && current_.type == FrameType::read_piece;
  std::vector<std::byte> words;
  if (!begun) {  // else the rest of the current piece says it
    words.resize(kFrameBytes + kTrailerBytes);
    encode_frame({.type = FrameType::read_piece, .value = read.id},
                 std::span(words).first<kFrameBytes>());
    encode_trailer(
        {.read_id_low = static_cast<std::uint32_t>(read.id), .status = PieceStatus::refused},
        std::span(words).last<kTrailerBytes>());
  }
  fail_with_words(status(Code::permission_denied,
                         "refused a READ of " + std::to_string(read.length) +
                             " bytes: its key is unknown, ended, too small or of another endpoint"),
                  words);
}

/// What is missing of the frame that the socket has begun, as bytes that depend on no memory of
/// the application: a message is copied, lent bytes are replaced by zeros.
std::vector<std::byte> Endpoint::rest_of_current() {
  std::vector<std::byte> rest;
  if (!has_current_) return rest;
  const OutFrame& frame = current_;
  rest.reserve(frame.bytes());
  rest.insert(rest.end(), frame.head.begin(), frame.head.begin() + frame.head_bytes);
  if (frame.type == FrameType::message) {
    const SendSlot& slot = send_.ring[frame.sequence];
    if (slot.inlined) {
      rest.insert(rest.end(), slot.inline_bytes.begin(),
                  slot.inline_bytes.begin() + frame.body_bytes);
    }
    for (std::size_t i = 0; i < slot.local.count; ++i) {
      const Segment& segment = slot.local.segments[i];
      const std::size_t at = rest.size();
      rest.resize(at + segment.length);
      if (segment.kind != nullptr) {
        segment.kind->copy_out({rest.data() + at, segment.length}, segment.address);
      } else {
        std::copy_n(segment.address, segment.length, rest.data() + at);
      }
    }
  } else if (frame.type == FrameType::read_piece) {
    rest.resize(rest.size() + frame.body_bytes);
    std::array<std::byte, kTrailerBytes> trailer = frame.trailer;
    if (frame.sent < frame.head_bytes + frame.body_bytes) {
      const auto id = static_cast<std::uint32_t>(service_.ring[service_.head].id);
      encode_trailer({.read_id_low = id, .status = PieceStatus::revoked}, trailer);
    }
    rest.insert(rest.end(), trailer.begin(), trailer.end());
  }
  rest.erase(rest.begin(), rest.begin() + frame.sent);
  return rest;
}

}  // namespace pawl::fabric::tcp
