// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/input.h"
#include "pawl/service.h"
#include "rpc/wire.h"

namespace pawl::fuzz {

inline constexpr Method kEcho = make_method("fuzz.Service/Echo");
inline constexpr Method kGet = make_method("fuzz.Service/Get", BulkDirection::download);
inline constexpr Method kPut = make_method("fuzz.Service/Put", BulkDirection::upload);
inline constexpr Method kNote = make_method("fuzz.Service/Note", BulkDirection::none, false, true);

/// What a peer knows by now and may name in its frames.
struct Knowledge {
  std::uint64_t epoch = 0;
  std::vector<rpc::LeaseName> leases;  ///< of the node, told to any peer
  std::vector<rpc::LeaseName> asked;   ///< of ours, for which the node asked
  std::vector<std::uint64_t> calls;    ///< that the node made
  // A body in parts that is under way.
  std::vector<std::byte> body;
  std::size_t body_sent = 0;
  rpc::FrameHeader body_header;

  template <class T>
  static void note(std::vector<T>& list, const T& value) {
    constexpr std::size_t kEntriesMax = 16;
    if (list.size() == kEntriesMax) list.erase(list.begin());
    list.push_back(value);
  }
};

/// A frame as a peer might say it: mostly well formed, naming things that there are.
struct MadeFrame {
  rpc::FrameHeader header;
  std::vector<std::byte> bytes;  ///< header and body
};
MadeFrame make_frame(Splitter& in, Knowledge& known);

}  // namespace pawl::fuzz
