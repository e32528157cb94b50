// SPDX-License-Identifier: Apache-2.0
#include "support/proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "fabric/socket/address.h"

namespace pawl::testing {

namespace {
UniqueFd plain_socket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
}  // namespace

Proxy::Proxy(Route route)
    : route_(std::move(route)), listener_(plain_socket()), stop_(::eventfd(0, EFD_CLOEXEC)) {
  fabric::SocketAddress at = fabric::parse_target("127.0.0.1:0")->addresses.front();
  PAWL_CHECK(::bind(listener_.get(), at.get(), at.length) == 0, "the loopback has a port");
  PAWL_CHECK(::listen(listener_.get(), 128) == 0, "it can be listened on");
  PAWL_CHECK(::getsockname(listener_.get(), at.get(), &at.length) == 0, "it has an address");
  address_ = fabric::format_address(at);
  thread_ = std::thread([this] { run(); });
}

Proxy::~Proxy() {
  const std::uint64_t one = 1;
  PAWL_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one, "an eventfd takes a number");
  thread_.join();
}

void Proxy::run() {
  std::vector<pollfd> fds;
  std::vector<Direction*> ways;
  while (true) {
    fds = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    ways.clear();
    for (const auto& link : links_) {
      for (Direction* way : {&link->up, &link->down}) {
        if (way->over) continue;
        fds.push_back({way->from, POLLIN, 0});
        ways.push_back(way);
      }
    }
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0) return;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (fds[i + 2].revents != 0) pass(*ways[i]);
    }
    if (fds[1].revents != 0) accept_one();
  }
}

void Proxy::accept_one() {
  UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client) return;
  const fabric::SocketAddress to = fabric::parse_target(route_(connections_))->addresses.front();
  ++connections_;
  UniqueFd server = plain_socket();
  if (::connect(server.get(), to.get(), to.length) != 0) return;
  const int a = client.get();
  const int b = server.get();
  links_.push_back(std::make_unique<Link>(
      Link{std::move(client), std::move(server), {a, b, 0, false}, {b, a, 0, false}}));
}

// Waits until the other end took it: both ends of these tests always read.
void Proxy::pass(Direction& way) {
  std::array<char, 16384> piece;
  const ssize_t got = ::recv(way.from, piece.data(), piece.size(), 0);
  if (got <= 0) {
    ::shutdown(way.to, SHUT_WR);
    way.over = true;
    return;
  }
  way.passed += static_cast<std::size_t>(got);
  if (way.passed > limit_) {
    way.over = true;
    return;
  }
  bytes_ += static_cast<std::size_t>(got);
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n =
        ::send(way.to, piece.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (n <= 0) {
      way.over = true;
      return;
    }
    sent += n;
  }
}

}  // namespace pawl::testing
