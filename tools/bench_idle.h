// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "bench_board.h"
#include "pawl/channel.h"
#include "pawl/node.h"
#include "pawl/result.h"

namespace pawl::tools {

/// As many descriptors as the system gives a process. Before there are threads.
void raise_file_limit();

/// Connections of the client that do nothing, and what they cost both ends.
class IdleConnections {
 public:
  /// The node runs in the background and has its first connection to the server.
  IdleConnections(BenchBoard& board, Node& node) : board_(board), node_(node) {}

  Status open();
  /// No call for the time of the sample.
  Status rest();

 private:
  Task<Status> connect_all();
  Task<Status> lane();

  BenchBoard& board_;
  Node& node_;
  std::vector<Channel> channels_;
};

}  // namespace pawl::tools
