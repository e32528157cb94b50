// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as what the tcp fabric reads from a socket, except for the socket.
#include "fabric/fabric.h"
#include "fabric/tcp/limits.h"
#include "fabric/tcp/wire.h"
#include "fuzz/input.h"

namespace pawl::fuzz {
namespace {

namespace wire = fabric::tcp;

/// The next n bytes, with zeros behind the end, in a block of exactly n.
template <std::size_t n>
class Fixed {
 public:
  explicit Fixed(Splitter& from) : block_(std::make_unique<std::byte[]>(n)) {
    const Input bytes = from.bytes(n);
    std::copy(bytes.begin(), bytes.end(), block_.get());
  }
  [[nodiscard]] std::span<const std::byte, n> bytes() const {
    return std::span<const std::byte, n>(block_.get(), n);
  }

 private:
  std::unique_ptr<std::byte[]> block_;
};

void require_sentence(const char* why) {
  require(std::string_view(why).size() > 8, "what is refused says why");
}

/// Equal but for reserved bytes, which are sent as zeros.
void require_equal(Input a, Input b, std::size_t reserved_from, std::size_t reserved_to) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(a[i] == b[i] || (i >= reserved_from && i < reserved_to),
            "a decoded value encodes to the bytes that it came from");
  }
}

void greeting(Splitter& in) {
  const Fixed<wire::kGreetingBytes> from(in);
  wire::Greeting got;
  if (const char* why = wire::decode_greeting(from.bytes(), got)) return require_sentence(why);
  require(got.hello_bytes <= fabric::kHelloBytesMax, "a hello is within its limit");
  std::array<std::byte, wire::kGreetingBytes> again;
  wire::encode_greeting(got, again);
  // The minor version is the sender's own, and reserved bytes are ignored.
  require_equal(from.bytes().first(10), std::span(again).first(10), 0, 0);
  require_equal(from.bytes().subspan(12, 4), std::span(again).subspan(12, 4), 1, 2);
  require_equal(from.bytes().subspan(16, 16), std::span(again).subspan(16, 16), 0, 0);
  if (got.kind == wire::GreetingKind::reject) return;
  require(got.limits.message_bytes_max > 0 && got.limits.read_bytes_max > 0 &&
              got.limits.read_depth > 0 && got.limits.piece_bytes_max >= wire::kPieceBytesMin,
          "a greeting that is accepted has usable limits");
}

void frame(Splitter& in) {
  const Fixed<wire::kFrameBytes> from(in);
  wire::FrameHeader got;
  if (const char* why = wire::decode_frame(from.bytes(), got)) return require_sentence(why);
  std::array<std::byte, wire::kFrameBytes> again;
  wire::encode_frame(got, again);
  require_equal(from.bytes(), again, 0, 0);
}

void trailer(Splitter& in) {
  const Fixed<wire::kTrailerBytes> from(in);
  wire::Trailer got;
  if (const char* why = wire::decode_trailer(from.bytes(), got)) return require_sentence(why);
  std::array<std::byte, wire::kTrailerBytes> again;
  wire::encode_trailer(got, again);
  require_equal(from.bytes(), again, 0, 0);
}

void read_target(Splitter& in) {
  const Fixed<16> from(in);
  std::array<std::byte, 16> again;
  wire::encode_read_target(wire::decode_read_target(from.bytes()), again);
  require_equal(from.bytes(), again, 0, 0);
}

}  // namespace

void tcp_wire(Input input) {
  Splitter in(input);
  greeting(in);
  do {
    frame(in);
    trailer(in);
    read_target(in);
  } while (!in.empty());
}

}  // namespace pawl::fuzz
