// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <string>

#include "base/unique_fd.h"
#include "fabric/socket/address.h"
#include "pawl/time.h"

namespace pawl::fabric {

/// "Connection refused (ECONNREFUSED)". Any thread.
std::string errno_text(int error);

/// A stream socket of the family: close-on-exec, non-blocking. On failure no fd and errno.
UniqueFd stream_socket(int family);

struct KeepAlive {
  Duration idle = 10s;     ///< silence before the first probe
  Duration interval = 5s;  ///< between probes
  int probes = 3;          ///< unanswered before the connection is dead
  Duration unacked = 30s;  ///< TCP_USER_TIMEOUT: bytes without an acknowledgement
};

/// Options of a connected socket; those that its family lacks are skipped.
void tune_connection(int fd, const KeepAlive& keep_alive);

/// Keeps what waits unsent in the kernel below one chunk, so that a message does not queue behind
/// more.
void limit_unsent(int fd, int bytes);

/// The pending error of a socket, 0 if there is none.
int take_socket_error(int fd);

/// A connection of a socket with itself: an ephemeral port was its own destination.
bool connected_to_itself(int fd);

/// Sends a gather list that holds no lent memory. Never blocks, never raises SIGPIPE.
/// Returns the bytes that the socket took, or -1 and errno.
ssize_t send_message(int fd, const msghdr& message);

/// Sends a gather list that may hold memory lent to peers. See the definition.
ssize_t send_lent(int fd, const msghdr& message);

}  // namespace pawl::fabric
