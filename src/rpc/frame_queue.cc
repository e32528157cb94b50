// SPDX-License-Identifier: Apache-2.0
#include "rpc/frame_queue.h"

#include <cstring>

#include "base/check.h"

namespace pawl::rpc {

bool FrameQueue::push(const FrameHeader& header, std::span<const std::byte> body) {
  const std::size_t waiting = bytes_.size() - begin_;
  const std::size_t bytes = FrameHeader::kBytes + body.size();
  if (waiting + bytes > kBytesMax) return false;
  if (begin_ >= waiting) {  // so each byte is moved once at most
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  const std::size_t at = bytes_.size();
  bytes_.resize(at + bytes);
  FrameHeader with_length = header;
  with_length.bytes = static_cast<std::uint32_t>(body.size());
  encode(with_length, std::span(bytes_).subspan(at));
  if (!body.empty())
    std::memcpy(bytes_.data() + at + FrameHeader::kBytes, body.data(), body.size());
  ++frames_;
  return true;
}

std::size_t FrameQueue::take(std::span<std::byte> out, std::uint16_t& frames) {
  std::size_t at = 0;
  while (frames_ > 0) {
    const std::span<const std::byte> waiting = std::span(bytes_).subspan(begin_);
    FrameHeader header;
    const char* why = nullptr;
    PAWL_CHECK(decode(waiting, header, why), "a queued session frame is well formed");
    const std::size_t bytes = FrameHeader::kBytes + header.bytes;
    if (bytes > out.size() - at) break;
    std::memcpy(out.data() + at, waiting.data(), bytes);
    at += bytes;
    begin_ += bytes;
    --frames_;
    ++frames;
  }
  return at;
}

void FrameQueue::clear() {
  bytes_.clear();
  begin_ = frames_ = 0;
}

}  // namespace pawl::rpc
