// SPDX-License-Identifier: Apache-2.0
// A ticket names lent memory in somebody else's message: here, over a socket pair.
// Prints:
//   ok: a ticket of a few bytes in another protocol, 1 MiB pulled beside it
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <thread>

#include "check.h"
#include "pawl/blocking.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

/// The other rpc: lines and counted bytes. It knows nothing of Pawl, and could be HTTP or gRPC.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { close(fd_); }

  void send(std::string_view bytes) const {
    if (write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  [[nodiscard]] std::string receive_line() const {
    std::string line;
    for (char c = 0; read(fd_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  [[nodiscard]] std::string receive(std::size_t bytes) const {
    std::string text(bytes, '\0');
    if (recv(fd_, text.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) std::abort();
    return text;
  }

 private:
  int fd_;
};

/// The side that has the bytes: answers each line "WEIGHTS" with the length and bytes of a ticket.
pawl::Status serve_weights(const Stream& stream, pawl::Node& node, const pawl::Server& server) {
  auto buffer = block(node.pool().acquire(1 << 20));
  if (!buffer.ok()) return buffer.status();
  examples::fill(buffer->bytes(), 'w');
  const auto block = std::move(*buffer).freeze();
  while (stream.receive_line() == "WEIGHTS") {
    auto ticket = node.issue_ticket({block}, server.address(), 10s);
    if (!ticket.ok()) return ticket.status();
    stream.send(std::to_string(ticket->bytes().size()) + '\n' + std::string(ticket->bytes()));
  }
  return pawl::Status();
}

int main() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return 1;
  const Stream ours(fds[0]);
  pawl::Node owner;
  pawl::Node reader;
  auto server = owner.serve("127.0.0.1:0");  // no services: only tickets
  if (!server.ok()) return examples::exit_code(server.status());
  owner.run_background();
  reader.run_background();
  const std::jthread other(
      [&] { examples::exit_code(serve_weights(Stream(fds[1]), owner, *server)); });

  ours.send("WEIGHTS\n");
  const pawl::Ticket ticket(ours.receive(std::stoul(ours.receive_line())));
  ours.send("BYE\n");
  auto got = block(reader.pull(ticket, into(reader.pool()), {.deadline = 5s}));
  if (!got.ok()) return examples::exit_code(got.status());
  auto part = got->part();
  return examples::exit_code(examples::check(
      part.ok() && part->size() == 1 << 20 && examples::is_full_of(part->bytes(), 'w'),
      "a ticket of a few bytes in another protocol, 1 MiB pulled beside it"));
}
