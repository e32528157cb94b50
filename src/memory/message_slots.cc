// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "memory/buffer_access.h"
#include "memory/pool_core.h"

namespace pawl::detail {

namespace {

struct MessagePiece {
  MessagePiece(std::span<std::byte> memory, MemoryKind& kind, std::shared_ptr<PoolCore> pool)
      : core(std::move(pool)), piece(memory, kind, MemoryUse::messages) {}
  MessagePiece(const MessagePiece&) = delete;
  MessagePiece& operator=(const MessagePiece&) = delete;
  ~MessagePiece() {
    core->devices().remove(piece);
    piece.kind().free(piece.memory());
  }

  const std::shared_ptr<PoolCore> core;
  memory::Piece piece;
};

/// Memory of its own for message slots. Keeps the pool.
struct Messages final : MessagePiece, Extent {
  Messages(std::span<std::byte> memory, MemoryKind& kind, std::shared_ptr<PoolCore> pool)
      : MessagePiece(memory, kind, std::move(pool)),
        Extent(MessagePiece::piece, *MessagePiece::core, nullptr) {}
};

}  // namespace

Result<Buffer> PoolCore::allocate_messages(std::size_t bytes) {
  if (!misuse_.ok()) return misuse_;
  if (bytes == 0) return Status(Code::invalid_argument, "message slots of 0 bytes");
  const std::size_t rounded = (bytes + memory::kFrameBytes - 1) & ~(memory::kFrameBytes - 1);
  Result<std::span<std::byte>> memory = host_.allocate(rounded);
  if (!memory.ok()) return memory.status();
  auto messages = std::make_unique<Messages>(memory->first(rounded), host_, shared_from_this());
  if (Status registered = devices_.add(messages->piece); !registered.ok()) return registered;
  Extent& extent = *messages.release();
  extent.hand_out();
  return BufferAccess::buffer(ExtentRef(&extent), extent.base(), bytes);
}

void PoolCore::free_messages(Extent& extent) {
  run_aside([messages = static_cast<Messages*>(&extent)] { delete messages; });
}

}  // namespace pawl::detail
