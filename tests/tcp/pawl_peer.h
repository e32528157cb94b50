// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "pawl/service.h"
#include "rpc/handshake.h"
#include "rpc/wire.h"
#include "tcp/harness.h"

namespace pawl::rpc::test {

using Bytes = std::vector<std::byte>;

/// A frame of the given body.
Bytes raw_frame(FrameType type, std::uint64_t call, std::span<const std::byte> body,
                std::uint8_t flags = 0);
template <class Body>
Bytes frame(FrameType type, std::uint64_t call, const Body& body) {
  std::array<std::byte, 1024> bytes;
  return raw_frame(type, call, std::span(bytes).first(encode(body, bytes)));
}
/// A request with this payload.
Bytes request_frame(std::uint64_t call, const Method& method, std::span<const std::byte> payload);

/// A peer on a raw socket that knows Pawl's wire, and keeps to as much of it as a test wants. Never
/// blocks.
class PawlPeer {
 public:
  using Class = MessageHeader::Class;
  struct Heard {
    FrameHeader header;
    Bytes body;
  };

  /// Connects and says the greeting with this handshake.
  PawlPeer(const std::string& address, const Handshake& handshake);
  static Handshake control_handshake();
  /// For a data endpoint of this peer's connection.
  [[nodiscard]] Handshake data_handshake() const;

  void turn();
  fabric::tcp::RawPeer& raw() { return raw_; }
  [[nodiscard]] bool ended() const { return raw_.ended(); }
  /// The answer to the handshake is here.
  [[nodiscard]] bool answered() const { return answered_; }
  [[nodiscard]] const Handshake& answer() const { return answer_; }
  [[nodiscard]] std::uint64_t transcript() const;

  /// The hello that the answer asks for.
  [[nodiscard]] Hello right_hello() const;
  void say_hello() { say({frame(FrameType::hello, 0, right_hello())}, Class::session); }
  /// A message of these frames, with the credits of all that was heard.
  void say(const std::vector<Bytes>& frames, Class message_class = Class::call);
  /// A message of whatever bytes.
  void say_bytes(std::span<const std::byte> message);
  void say_read(std::uint64_t key, std::uint64_t address, std::uint32_t bytes) {
    raw_.say_read(reads_said_++, key, address, bytes);
  }
  [[nodiscard]] bool has_credit(Class message_class) const;
  /// Answers take credit that is never returned.
  void keep_call_credit() { keep_call_credit_ = true; }
  /// Returns credit and acknowledges, if something was heard since the last time.
  void return_credit();

  /// The oldest frame of this type that was heard and not taken.
  bool take(FrameType type, Heard& out);
  /// Statuses of READ pieces, and their bytes.
  [[nodiscard]] const std::vector<fabric::tcp::PieceStatus>& pieces() const { return pieces_; }
  [[nodiscard]] const Bytes& read_bytes() const { return read_bytes_; }

 private:
  void hear();
  void hear_message(std::span<const std::byte> message);

  fabric::tcp::RawPeer raw_;
  const Handshake own_;
  const Bytes own_bytes_;
  bool answered_ = false;
  Handshake answer_;
  Bytes answer_bytes_;
  std::size_t parsed_ = 0;  // bytes of what was heard
  std::deque<Heard> heard_;
  std::vector<fabric::tcp::PieceStatus> pieces_;
  Bytes read_bytes_;
  bool keep_call_credit_ = false;
  std::uint64_t messages_heard_ = 0;
  std::uint64_t messages_told_ = 0;
  std::uint32_t calls_heard_ = 0, sessions_heard_ = 0;
  std::uint32_t calls_said_ = 0, sessions_said_ = 0;
  std::uint32_t calls_returned_ = 0, sessions_returned_ = 0;  // of ours, by the node
  std::uint64_t reads_said_ = 0;
};

}  // namespace pawl::rpc::test
