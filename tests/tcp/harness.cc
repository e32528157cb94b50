// SPDX-License-Identifier: Apache-2.0
#include "tcp/harness.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "fabric/socket/address.h"
#include "fabric/socket/socket.h"

namespace pawl::fabric::tcp {

// --- Node ------------------------------------------------------------------------------------

std::unique_ptr<Memory> Node::memory(std::size_t bytes, MemoryUse use) {
  auto memory = std::make_unique<Memory>();
  memory->bytes.resize(bytes);
  memory->handle = fabric->register_memory(memory->bytes, kind, use).value();
  return memory;
}

std::size_t Node::post(EndpointId endpoint, const WorkRequest& request) {
  Status why;
  const std::size_t n = fabric->post(endpoint, std::span(&request, 1), why);
  EXPECT_EQ(n, 1u) << why.to_string();
  return n;
}

void Node::receive(EndpointId endpoint, std::uint64_t id, const LocalSegment& to) {
  post(endpoint, {.id = id, .op = Opcode::receive, .local = std::span(&to, 1)});
}

void Node::send(EndpointId endpoint, std::uint64_t id, const LocalSegment& from) {
  post(endpoint, {.id = id, .op = Opcode::send, .local = std::span(&from, 1)});
}

void Node::read(EndpointId endpoint, std::uint64_t id, const LocalSegment& to, RemoteAddress from) {
  post(endpoint, {.id = id, .op = Opcode::read, .local = std::span(&to, 1), .remote = from});
}

bool Node::turn(TimePoint now) {
  std::array<Completion, 32> out;
  bool any = false;
  const std::size_t n = fabric->poll(now, out);
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_TRUE(completions.emplace(out[i].id, out[i]).second || out[i].id == 0)
        << "request " << out[i].id << " completed twice";
    order.push_back(out[i].id);
    if (on_completion) on_completion(out[i]);
    any = true;
  }
  Event event;
  while (fabric->poll_event(event)) {
    events.push_back(std::move(event));
    any = true;
  }
  return any;
}

const Event* Node::event(EventKind wanted, EndpointId endpoint) const {
  for (const Event& each : events) {
    if (each.kind == wanted && (!endpoint || each.endpoint == endpoint)) return &each;
  }
  return nullptr;
}

std::size_t Node::count(EventKind wanted) const {
  return static_cast<std::size_t>(std::count_if(
      events.begin(), events.end(), [wanted](const Event& each) { return each.kind == wanted; }));
}

std::string Node::status(std::uint64_t id) const {
  const auto found = completions.find(id);
  if (found == completions.end()) return "none";
  return std::string(completion_status_name(found->second.status));
}

// --- RawPeer ---------------------------------------------------------------------------------

RawPeer::RawPeer(const std::string& address) {
  const SocketAddress target = parse_target(address)->addresses.front();
  fd_ = stream_socket(target.family());
  const int result = ::connect(fd_.get(), target.get(), target.length);
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS) << errno_text(errno);
}

void RawPeer::say_greeting(GreetingKind kind, std::uint16_t hello_bytes) {
  std::array<std::byte, kGreetingBytes> bytes;
  encode_greeting({.kind = kind,
                   .hello_bytes = hello_bytes,
                   .limits = {.message_bytes_max = 1 << 20,
                              .read_bytes_max = 1 << 30,
                              .read_depth = 16,
                              .piece_bytes_max = 65536}},
                  bytes);
  say(bytes);
}

void RawPeer::say_frame(const FrameHeader& header, std::size_t zero_body) {
  std::array<std::byte, kFrameBytes> bytes;
  encode_frame(header, bytes);
  say(bytes);
  out_.resize(out_.size() + zero_body);
}

void RawPeer::say_read(std::uint64_t id, std::uint64_t key, std::uint64_t address,
                       std::uint32_t length) {
  say_frame({.type = FrameType::read_request, .length = length, .value = id});
  std::array<std::byte, 16> bytes;
  encode_read_target({.key = key, .address = address}, bytes);
  say(bytes);
}

void RawPeer::turn(std::size_t send_max) {
  if (!fd_) return;
  if (said_ != out_.size()) {
    const std::size_t bytes = std::min(send_max, out_.size() - said_);
    const ssize_t n = ::send(fd_.get(), out_.data() + said_, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) said_ += static_cast<std::size_t>(n);
    if (said_ == out_.size()) {
      out_.clear();
      said_ = 0;
    }
  }
  if (!reading_ || ended_) return;
  std::array<std::byte, 65536> in;
  const ssize_t n = ::recv(fd_.get(), in.data(), in.size(), MSG_DONTWAIT);
  if (n > 0) heard_.insert(heard_.end(), in.begin(), in.begin() + n);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN)) ended_ = true;
}

void RawPeer::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  fd_.reset();
}

void RawPeer::finish_sending() { ::shutdown(fd_.get(), SHUT_WR); }

bool RawPeer::frame(std::size_t offset, FrameHeader& out) const {
  const std::size_t at = kGreetingBytes + offset;
  if (heard_.size() < at + kFrameBytes) return false;
  EXPECT_EQ(decode_frame(std::span(heard_).subspan(at).first<kFrameBytes>(), out), nullptr);
  return true;
}

// --- TcpTest ---------------------------------------------------------------------------------

bool TcpTest::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = clock_.now() + limit;
  for (;;) {
    bool any = a_.turn(now());
    any = b_.turn(now()) || any;
    for (RawPeer* raw : raw_) raw->turn();
    if (done()) return true;
    if (clock_.now() > end) return false;
    if (any || !raw_.empty() || !a_.fabric->arm() || !b_.fabric->arm()) continue;
    std::array<pollfd, 2> fds = {
        pollfd{.fd = a_.fabric->event_fd(), .events = POLLIN, .revents = 0},
        pollfd{.fd = b_.fabric->event_fd(), .events = POLLIN, .revents = 0}};
    const TimePoint next = std::min(a_.fabric->next_event_time(), b_.fabric->next_event_time());
    const std::int64_t left = std::clamp<std::int64_t>((next - now()).count() / 1'000'000, 0, 100);
    ::poll(fds.data(), fds.size(), static_cast<int>(left));
  }
}

void TcpTest::run_turns(int count) {
  for (int i = 0; i < count; ++i) {
    a_.turn(now());
    b_.turn(now());
    for (RawPeer* raw : raw_) raw->turn();
  }
}

std::string TcpTest::listen(std::string_view address) {
  const Result<ListenerId> listener = b_.fabric->listen(address);
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
  return listener.ok() ? b_.fabric->listener_address(*listener) : "";
}

TcpTest::Link TcpTest::connect(const EndpointOptions& a_options, const EndpointOptions& b_options) {
  if (address_.empty()) address_ = listen();
  const std::size_t requests = b_.count(EventKind::connect_request);
  Link link;
  link.a = a_.fabric->connect(address_, a_options, {}, now() + 60s).value();
  EXPECT_TRUE(run_until([&] { return b_.count(EventKind::connect_request) > requests; }));
  for (const Event& event : b_.events) {
    if (event.kind == EventKind::connect_request) link.b = event.endpoint;
  }
  EXPECT_TRUE(b_.fabric->accept(link.b, b_options, {}).ok());
  EXPECT_TRUE(run_until([&] {
    return a_.event(EventKind::connected, link.a) && b_.event(EventKind::connected, link.b);
  }));
  return link;
}

std::unique_ptr<RawPeer> TcpTest::raw_link(EndpointId& endpoint, const EndpointOptions& options) {
  if (address_.empty()) address_ = listen();
  const std::size_t requests = b_.count(EventKind::connect_request);
  auto raw = std::make_unique<RawPeer>(address_);
  raw_.push_back(raw.get());
  raw->say_greeting();
  EXPECT_TRUE(run_until([&] { return b_.count(EventKind::connect_request) > requests; }));
  for (const Event& event : b_.events) {
    if (event.kind == EventKind::connect_request) endpoint = event.endpoint;
  }
  EXPECT_TRUE(b_.fabric->accept(endpoint, options, {}).ok());
  EXPECT_TRUE(run_until([&] {
    return b_.event(EventKind::connected, endpoint) && raw->heard().size() >= kGreetingBytes;
  }));
  return raw;
}

void TcpTest::close_all() {
  raw_.clear();
  for (Node* node : {&a_, &b_}) {
    std::set<EndpointId> endpoints;
    for (const Event& event : node->events) {
      if (event.endpoint) endpoints.insert(event.endpoint);
    }
    for (const EndpointId endpoint : endpoints) node->fabric->close(endpoint);
    node->on_completion = nullptr;
  }
  advance(10s);  // half-open handshakes end
  EXPECT_TRUE(run_until([&] {
    return a_.fabric->resources().endpoints == 0 && b_.fabric->resources().endpoints == 0;
  }));
  EXPECT_EQ(a_.fabric->resources().work_requests, 0u);
  EXPECT_EQ(b_.fabric->resources().work_requests, 0u);
}

}  // namespace pawl::fabric::tcp
