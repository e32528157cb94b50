// SPDX-License-Identifier: Apache-2.0
// A ticket names lent memory in somebody else's message: here, a line of text over a socket pair.
// Prints:
//   ok: a ticket of a few bytes in a text protocol, 1 MiB pulled beside it
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <thread>

#include "check.h"
#include "pawl/block.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

/// The other rpc: lines over a stream. It knows nothing of Pawl, and could be HTTP or gRPC.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { close(fd_); }

  void send(std::string line) const {
    line += '\n';
    if (write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  }
  [[nodiscard]] std::string receive() const {
    std::string line;
    for (char c = 0; read(fd_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

 private:
  int fd_;
};

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}
std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (; hex.size() >= 2; hex.remove_prefix(2)) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(0, 2)), nullptr, 16));
  }
  return bytes;
}

/// The side that has the bytes: answers "WEIGHTS" with a ticket.
void serve_lines(const Line& line, pawl::Node& node, const pawl::Server& server) {
  auto buffer = block(node.pool().acquire(1 << 20));
  if (!buffer.ok()) return line.send("ERROR " + buffer.status().to_string());
  examples::fill(buffer->bytes(), 'w');
  const auto block = std::move(*buffer).freeze();
  while (line.receive() == "WEIGHTS") {
    auto ticket = node.issue_ticket({block}, server.address(), 10s);
    if (!ticket.ok()) return line.send("ERROR " + ticket.status().to_string());
    line.send("TICKET " + to_hex(ticket->bytes()));
  }
}

int main() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return 1;
  const Line ours(fds[0]);
  const Line theirs(fds[1]);
  pawl::Node owner;
  pawl::Node reader;
  auto server = owner.serve("127.0.0.1:0");  // no services: only tickets
  if (!server.ok()) return examples::exit_code(server.status());
  owner.run_background();
  reader.run_background();
  const std::jthread other([&] { serve_lines(theirs, owner, *server); });

  ours.send("WEIGHTS");
  const std::string answer = ours.receive();
  ours.send("BYE");
  if (!answer.starts_with("TICKET ")) return 1;
  const pawl::Ticket ticket(from_hex(answer.substr(7)));
  auto got = block(reader.pull(ticket, into(reader.pool()), {.deadline = 5s}));
  if (!got.ok()) return examples::exit_code(got.status());
  auto part = got->part();
  return examples::exit_code(examples::check(
      part.ok() && part->size() == 1 << 20 && examples::is_full_of(part->bytes(), 'w'),
      "a ticket of a few bytes in a text protocol, 1 MiB pulled beside it"));
}
