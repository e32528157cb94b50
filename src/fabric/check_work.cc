// SPDX-License-Identifier: Apache-2.0
#include "fabric/check_work.h"

#include <cstdint>

namespace pawl::fabric {

Status check_work(const Capabilities& device, const WorkRequest& work) {
  std::uint32_t segments_max = 0;
  std::uint64_t bytes_max = ~std::uint64_t{0};
  switch (work.op) {
    case Opcode::send:
      segments_max = device.send_segments_max;
      bytes_max = work.inline_payload ? device.inline_bytes_max : device.message_bytes_max;
      break;
    case Opcode::receive:
      segments_max = device.receive_segments_max;
      break;
    case Opcode::read:
      segments_max = device.read_segments_max;
      bytes_max = device.read_bytes_max;
      break;
    case Opcode::bind:
      if (work.bind_target.length != 0) return {};
      return Status(Code::invalid_argument, "a bind to no bytes was posted");
    case Opcode::invalidate:
      return {};
  }
  std::uint64_t bytes = 0;
  for (const LocalSegment& segment : work.local) {
    if (segment.length == 0) {
      return Status(Code::invalid_argument, "a segment of no bytes was posted; leave it out");
    }
    bytes += segment.length;
  }
  if (bytes == 0) return Status(Code::invalid_argument, "work on no bytes was posted");
  if (work.local.size() > segments_max || bytes > bytes_max) {
    return Status(Code::too_large,
                  "more segments or bytes than the device takes; see Capabilities");
  }
  return {};
}

}  // namespace pawl::fabric
