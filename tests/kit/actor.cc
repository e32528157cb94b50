// SPDX-License-Identifier: Apache-2.0
// One of the two processes. Its node is embedded: one thread turns it, reads commands and reports.
#include "kit/actor.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "guard/policy.h"
#include "kit/hold.h"
#include "kit/words.h"
#include "pawl/blocking.h"
#include "pawl/log.h"
#include "rpc/system_fabric.h"
#include "support/function_service.h"

namespace pawl::kit {

namespace {

constexpr Method kGet = make_method("kit.Late/Get", BulkDirection::download);
constexpr Method kPut = make_method("kit.Late/Put", BulkDirection::upload);

// A call that is held ends when the test says so: the clocks stand still meanwhile, and move by
// kAdvance. That is less than the time after which a silent peer is given up.
constexpr Duration kDeadline = 3s;
constexpr Duration kAdvance = 4s;
constexpr std::size_t kPoolBytes = std::size_t{64} << 20;
constexpr int kTriesMax = 64;  // to be given the buffer that came back last

/// Runs, or stands still, and can be moved on.
class KitClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return frozen_ ? at_ : steady_.now() + ahead_; }
  void advance(Duration d) {
    at_ = at_ + d;
    ahead_ += d;
  }
  void freeze() {
    at_ = now();
    frozen_ = true;
  }
  void thaw() {
    ahead_ = now() - steady_.now();
    frozen_ = false;
  }

 private:
  SteadyClock steady_;
  Duration ahead_{0};
  bool frozen_ = false;
  TimePoint at_;
};

class Silence final : public LogSink {
 public:
  void write(Severity, std::string_view) noexcept override {}
};

/// The system's fabric (tcp, or what PAWL_FABRIC names), with the faults of FaultyFabric over it.
class FaultySource final : public detail::FabricSource {
 public:
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t poller) override {
    if (!system_.ok()) return system_.status();
    Result<std::unique_ptr<fabric::Fabric>> inner = (*system_)->make_fabric(poller);
    if (!inner.ok()) return inner;
    inner_ = *std::move(inner);
    auto faulty = std::make_unique<fabric::FaultyFabric>(*inner_, fabric::FaultPlan{});
    faulty_ = faulty.get();
    return std::unique_ptr<fabric::Fabric>(std::move(faulty));
  }
  [[nodiscard]] const char* name() const override {
    return system_.ok() ? (*system_)->name() : "none";
  }
  [[nodiscard]] fabric::FaultyFabric& faulty() const { return *faulty_; }

 private:
  Result<std::unique_ptr<detail::FabricSource>> system_ = rpc::make_system_source("auto");
  std::unique_ptr<fabric::Fabric> inner_;  // outlives the node's
  fabric::FaultyFabric* faulty_ = nullptr;
};

class Actor {
 public:
  explicit Actor(const ActorOptions& options)
      : options_(options), node_(node_options()), hold_(node_, source_.faulty()) {}

  Status begin();
  void run();

 private:
  NodeOptions node_options();
  Task<Result<Payload>> get(Call& call, std::span<const std::byte> request, Download& out);
  Task<Result<Payload>> put(Call& call, std::span<const std::byte> request, Upload& in);

  void report(const std::string& line);
  void report_handed_over(std::string_view what, std::uint64_t use, const Status& status,
                          std::span<const std::byte> bytes);
  void read_commands();
  void obey(const std::string& line);
  void start_get(std::uint64_t use, std::size_t bytes, bool keep);
  void start_put(std::uint64_t use, std::size_t bytes, bool keep);
  void set_socket_buffers(int bytes);
  bool step();
  bool reuse(std::uint64_t use);
  bool settled();
  void wait_for_something();

  const ActorOptions options_;
  KitClock clock_;
  Silence log_;
  FaultySource source_;
  testing::FunctionService service_;
  Node node_;
  Server server_;
  Channel channel_;
  Hold hold_;
  std::string input_;
  bool quit_ = false;

  // Client: the call under way.
  Operation<Outcome<Pulled<Payload>>> getting_;
  Operation<Outcome<Payload>> putting_;
  std::uint64_t use_ = 0;
  // Owner: the bytes that were lent last, what is kept of them, and their next use.
  const std::byte* lent_base_ = nullptr;
  std::size_t lent_bytes_ = 0;
  Block kept_;
  Buffer next_;
  std::uint64_t next_use_ = 0;

  // What is reported once it is so.
  std::optional<std::uint64_t> reuse_wanted_;
  std::optional<std::uint64_t> confirms_wanted_;
  std::optional<std::uint64_t> lost_wanted_;
  bool settled_wanted_ = false;
  bool stop_when_held_ = false;
};

NodeOptions Actor::node_options() {
  NodeOptions options;
  options.name = options_.server ? "kit server" : "kit client";
  options.fabric_source = &source_;
  options.clock = &clock_;
  options.log = &log_;
  options.allow_baselines = true;
  options.guard = options_.guard;
  options.memory_windows = guard::policy_of(options_.guard).binds_windows;
  options.read_timeout = std::chrono::hours(1);  // nothing but the test ends what is held
  options.quarantine_timeout = std::chrono::hours(2);
  options.pool.bytes_max = kPoolBytes;
  options.pool.slab_bytes = std::size_t{16} << 20;
  options.pool.bytes_at_start = kPoolBytes / 2;
  options.pool.room_lease_age_min = std::chrono::hours(1);
  return options;
}

Status Actor::begin() {
  if (!node_.status().ok()) return node_.status();
  if (options_.server) {
    service_.add(kGet, [this](Call& call, std::span<const std::byte> request, Upload&,
                              Download& out) { return get(call, request, out); });
    service_.add(kPut, [this](Call& call, std::span<const std::byte> request, Upload& in,
                              Download&) { return put(call, request, in); });
    Result<Server> server = node_.serve(options_.address, service_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    report("ready " + server_.address());
    return {};
  }
  ChannelOptions channel;
  channel.guard = options_.guard;
  channel.default_deadline = kDeadline;
  channel.liveness = std::chrono::hours(1);
  channel.reconnect_backoff_max = std::chrono::milliseconds(20);
  channel_ = node_.channel(options_.address, channel);
  report("ready " + options_.address);
  return {};
}

// --- the service -----------------------------------------------------------------------------

struct Request {
  std::uint64_t use = 0;
  std::uint64_t bytes = 0;
  std::uint64_t keep = 0;
};

Request request_of(std::span<const std::byte> bytes) {
  Request request;
  std::memcpy(&request, bytes.data(), std::min(bytes.size(), sizeof request));
  return request;
}
Payload payload_of(const Request& request) {
  return Payload(std::as_bytes(std::span(&request, 1)));
}

Task<Result<Payload>> Actor::get(Call& call, std::span<const std::byte> payload, Download& out) {
  const Request request = request_of(payload);
  Buffer buffer;
  if (next_ && next_use_ == request.use) {
    buffer = std::move(next_);
  } else {
    buffer = co_await ok(call.pool().acquire(request.bytes));
    fill(buffer.bytes(), request.use);
  }
  lent_base_ = buffer.bytes().data();
  lent_bytes_ = buffer.size();
  Block block = std::move(buffer).freeze();
  if (request.keep != 0) kept_ = block;
  out.add(std::move(block));
  co_return Payload();
}

Task<Result<Payload>> Actor::put(Call& call, std::span<const std::byte> payload, Upload& in) {
  const Request request = request_of(payload);
  const Result<Buffer> buffer = co_await in.pull(call.pool());
  report_handed_over("pulled", request.use, buffer.status(),
                     buffer.ok() ? buffer->bytes() : std::span<const std::byte>());
  if (!buffer.ok()) co_return buffer.status();
  hold_.accepted();
  co_return Payload();
}

// --- calls -----------------------------------------------------------------------------------

void Actor::start_get(std::uint64_t use, std::size_t bytes, bool keep) {
  use_ = use;
  getting_ = channel_.call(kGet, payload_of({use, bytes, keep ? 1u : 0u}), into(node_.pool()), {});
  const auto done = [](void* context, Outcome<Pulled<Payload>> outcome) {
    auto* self = static_cast<Actor*>(context);
    const Result<Block> part = outcome.ok() ? outcome->part() : Result<Block>(outcome.status());
    self->report_handed_over("done", self->use_, part.status(),
                             part.ok() ? part->bytes() : std::span<const std::byte>());
  };
  getting_.begin(Callback<Outcome<Pulled<Payload>>>{done, this});
}

void Actor::start_put(std::uint64_t use, std::size_t bytes, bool keep) {
  use_ = use;
  Buffer buffer;
  if (next_ && next_use_ == use) {
    buffer = std::move(next_);
  } else {
    Result<Buffer> fresh = node_.pool().try_acquire(bytes);
    if (!fresh.ok()) return report("done " + std::to_string(use) + " no_buffer 0 0 0");
    buffer = *std::move(fresh);
    fill(buffer.bytes(), use);
  }
  lent_base_ = buffer.bytes().data();
  lent_bytes_ = buffer.size();
  Block block = std::move(buffer).freeze();
  if (keep) kept_ = block;
  putting_ = channel_.call(kPut, payload_of({use, bytes, 0}), lend(std::move(block)), {});
  const auto done = [](void* context, Outcome<Payload> outcome) {
    auto* self = static_cast<Actor*>(context);
    self->report_handed_over("done", self->use_, outcome.ok() ? Status() : outcome.status(), {});
  };
  putting_.begin(Callback<Outcome<Payload>>{done, this});
}

// --- what the test says ----------------------------------------------------------------------

void Actor::report(const std::string& line) {
  const std::string whole = line + "\n";
  for (std::size_t said = 0; said < whole.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, whole.data() + said, whole.size() - said);
    if (n <= 0) return;
    said += static_cast<std::size_t>(n);
  }
}

// "done 7 stale 0 0 0": use, code, bytes of this use, bytes of another one, chunks with both.
void Actor::report_handed_over(std::string_view what, std::uint64_t use, const Status& status,
                               std::span<const std::byte> bytes) {
  const Found found = look(bytes, use);
  std::ostringstream line;
  line << what << ' ' << use << ' ' << code_name(status.code()) << ' ' << found.right << ' '
       << found.wrong << ' ' << found.torn;
  report(line.str());
}

void Actor::read_commands() {
  char buffer[4096];
  pollfd in{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&in, 1, 0) <= 0) return;
  const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
  if (n <= 0) {
    quit_ = true;
    return;
  }
  input_.append(buffer, static_cast<std::size_t>(n));
  for (std::size_t end; (end = input_.find('\n')) != std::string::npos;) {
    const std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    obey(line);
  }
}

void Actor::obey(const std::string& line) {
  const Poller::Scope scope(node_.poller());
  std::istringstream words(line);
  std::string word;
  words >> word;
  const auto number = [&words] {
    std::uint64_t value = 0;
    words >> value;
    return value;
  };
  if (word == "arm") {
    std::string point;
    words >> point;
    const bool upload = number() != 0;
    stop_when_held_ = number() != 0;
    // A NIC goes on when its process has stopped: only sockets wait for it.
    const bool sockets = std::string_view(source_.name()) == "tcp";
    hold_.arm(*point_of(point), upload, stop_when_held_ && sockets);
    report("armed");
  } else if (word == "get" || word == "put") {
    const std::uint64_t use = number();
    const std::uint64_t bytes = number();
    const bool keep = number() != 0;
    word == "get" ? start_get(use, bytes, keep) : start_put(use, bytes, keep);
  } else if (word == "drop") {
    getting_.reset();
    putting_.reset();
    report("dropped");
  } else if (word == "freeze") {
    clock_.freeze();
    report("frozen");
  } else if (word == "thaw") {
    clock_.thaw();
    report("thawed");
  } else if (word == "advance") {
    clock_.advance(kAdvance);
    report("advanced");
  } else if (word == "retire") {
    std::move(kept_).retire();
    report("retired");
  } else if (word == "reuse") {
    reuse_wanted_ = number();
  } else if (word == "confirms") {
    report("confirms " + std::to_string(node_.stats().confirms_valid));
  } else if (word == "await_confirms") {
    confirms_wanted_ = number();
  } else if (word == "await_lost") {
    lost_wanted_ = number();
  } else if (word == "buffers") {
    set_socket_buffers(static_cast<int>(number()));
    report("buffers_set");
  } else if (word == "let_go") {
    hold_.let_go();
    report("let_gone");
  } else if (word == "settle") {
    kept_ = Block();
    next_ = Buffer();
    settled_wanted_ = true;
  } else {
    report("what? " + line);
  }
}

// The sockets of this process: with small buffers in the kernel a READ does not fit between two
// processes of which one has stopped.
void Actor::set_socket_buffers(int bytes) {
  for (int fd = 3; fd < 1024; ++fd) {
    int domain = 0;
    int listens = 0;
    socklen_t length = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_INET) {
      continue;
    }
    length = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens != 0) {
      continue;
    }
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
}

// --- conditions ------------------------------------------------------------------------------

// The owner has the very bytes that were lent in hand again, and writes its next use into them.
bool Actor::reuse(std::uint64_t use) {
  if (kept_) {
    Result<Buffer> buffer = std::move(kept_).unique();
    if (!buffer.ok()) return false;
    next_ = *std::move(buffer);
  } else {
    if (node_.stats().pool.leases_live != 0) return false;
    std::vector<Buffer> others;
    next_ = Buffer();
    for (int i = 0; i < kTriesMax && !next_; ++i) {
      Result<Buffer> buffer = node_.pool().try_acquire(lent_bytes_);
      if (!buffer.ok()) return false;
      if (buffer->bytes().data() == lent_base_) {
        next_ = *std::move(buffer);
      } else {
        others.push_back(*std::move(buffer));
      }
    }
    if (!next_) return false;
  }
  next_use_ = use;
  fill(next_.bytes(), use);
  return true;
}

bool Actor::settled() {
  const NodeStats stats = node_.stats();
  const fabric::FaultyFabric& faulty = source_.faulty();
  return stats.calls_live == 0 && stats.served_live == 0 && stats.transfers_live == 0 &&
         stats.pool.leases_live == 0 && stats.pool.bytes_landing == 0 &&
         stats.pool.bytes_quarantined == 0 && stats.pool.bytes_in_use == 0 &&
         stats.pool.waiting == 0 && faulty.reads_held() == 0 && faulty.completions_held() == 0 &&
         faulty.sends_held() == 0;
}

// Reports what became true. True: turn again.
bool Actor::step() {
  if (hold_.reached()) {
    report("held");
    if (stop_when_held_) ::raise(SIGSTOP);
  }
  if (reuse_wanted_ && reuse(*reuse_wanted_)) {
    report("reused " + std::to_string(*std::exchange(reuse_wanted_, std::nullopt)));
  }
  if (confirms_wanted_ && node_.stats().confirms_valid >= *confirms_wanted_) {
    confirms_wanted_.reset();
    report("confirmed");
  }
  if (lost_wanted_ && node_.stats().connections_lost >= *lost_wanted_) {
    lost_wanted_.reset();
    report("lost");
  }
  if (settled_wanted_ && settled()) {
    settled_wanted_ = false;
    const NodeStats stats = node_.stats();
    report("settled " + std::to_string(stats.connections_opened) + " " +
           std::to_string(stats.connections_lost) + " " +
           std::to_string(stats.data_endpoints_lost));
  }
  return hold_.armed();
}

void Actor::wait_for_something() {
  if (!node_.arm()) return;
  std::array<pollfd, 2> fds = {pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                               pollfd{.fd = node_.event_fd(), .events = POLLIN, .revents = 0}};
  ::poll(fds.data(), fds.size(), 20);
}

void Actor::run() {
  while (!quit_) {
    bool busy = node_.run_once();
    busy = step() || busy;
    if (!busy) wait_for_something();
    read_commands();
  }
}

}  // namespace

int run_actor(const ActorOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != options.parent) return 1;
  ::signal(SIGPIPE, SIG_IGN);
  Actor actor(options);
  if (const Status status = actor.begin(); !status.ok()) {
    StderrSink().write(Severity::error, status.to_string());
    return 1;
  }
  actor.run();
  return 0;
}

}  // namespace pawl::kit
