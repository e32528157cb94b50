// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a message with its frames, and as the body of one frame.
#include "fuzz/bodies.h"
#include "fuzz/input.h"
#include "rpc/wire.h"

namespace pawl::fuzz {
namespace {

using namespace rpc;  // NOLINT: the frames under test

void require_sentence(const char* why) {
  require(why != nullptr && *why != '\0', "what is refused says why");
}

void message(Input input) {
  const Exact exact(input);
  MessageHeader header;
  const char* why = nullptr;
  if (!decode(exact.bytes(), header, why)) return require_sentence(why);
  require(header.bytes == input.size() - MessageHeader::kBytes, "a message is as long as it says");
  std::array<std::byte, MessageHeader::kBytes> again;
  encode(header, again);
  for (std::size_t i = 0; i < again.size(); ++i) {
    const bool ignored = i == 1 || i >= 24;  // flags that are not critical; reserved
    require(again[i] == input[i] || ignored, "a header encodes to the bytes that it came from");
  }
  std::size_t frames = 0;
  for (Input rest = exact.bytes().subspan(MessageHeader::kBytes); !rest.empty(); ++frames) {
    FrameHeader frame;
    Input body;
    require(next_frame(rest, frame, body, why), "frames of an accepted message can be read");
    require_inside(body, exact.bytes());
    require(body.size() == frame.bytes, "a body is as long as its header says");
    const Exact alone(body);
    check_body(frame, alone.bytes());
  }
  require(frames == header.frames, "a message has as many frames as it says");
}

/// The shape of a message is hard to guess: the target gives it, the input is the body.
void one_body(Splitter& in) {
  FrameHeader header;
  header.type = FrameType{in.u8()};
  header.flags = in.u8();
  header.attempt = in.u16();
  header.call = in.any();
  const Input body = in.rest();
  header.bytes = static_cast<std::uint32_t>(body.size());
  std::vector<std::byte> bytes(FrameHeader::kBytes + body.size());
  encode(header, bytes);
  std::copy(body.begin(), body.end(), bytes.begin() + FrameHeader::kBytes);
  const Exact frame(bytes);
  Input rest = frame.bytes();
  FrameHeader got;
  Input got_body;
  const char* why = nullptr;
  if (!next_frame(rest, got, got_body, why)) return require_sentence(why);
  require(rest.empty() && got_body.size() == body.size() && got.type == header.type &&
              got.flags == header.flags && got.attempt == header.attempt && got.call == header.call,
          "a frame's header is the same after encode and decode");
  check_body(got, got_body);
}

}  // namespace

void frames(Input input) {
  Splitter in(input);
  if (in.coin()) {
    message(in.rest());
  } else {
    one_body(in);
  }
}

}  // namespace pawl::fuzz
