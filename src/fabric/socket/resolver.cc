// SPDX-License-Identifier: Apache-2.0
#include "fabric/socket/resolver.h"

#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "fabric/socket/socket.h"

namespace pawl::fabric {

struct Resolver::Shared {
  explicit Shared(LookUp how) : look_up(std::move(how)) {}

  struct Question {
    std::uint64_t id = 0;
    std::string host;
    std::uint16_t port = 0;
  };

  const LookUp look_up;
  std::mutex mutex;
  std::condition_variable asked;
  std::deque<Question> questions;
  std::deque<Answer> answers;
  std::size_t threads = 0;
  std::size_t idle = 0;
  bool closed = false;
  UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

HostAddresses look_up_by_system(const std::string& host) {
  HostAddresses found;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) {
    found.error = gai_strerror(code);
    return found;
  }
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (found.addresses.size() == kAddressesMax) break;
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    SocketAddress address;
    address.length = at->ai_addrlen;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    found.addresses.push_back(address);
  }
  freeaddrinfo(list);
  if (found.addresses.empty()) found.error = "it has no IPv4 or IPv6 address";
  return found;
}

Resolver::Resolver(LookUp look_up) : shared_(std::make_shared<Shared>(std::move(look_up))) {}

Resolver::~Resolver() {
  const std::lock_guard lock(shared_->mutex);
  shared_->closed = true;
  shared_->questions.clear();
  shared_->asked.notify_all();
}

int Resolver::event_fd() const { return shared_->wake.get(); }

void Resolver::work(const std::shared_ptr<Shared>& shared) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's business
  std::unique_lock lock(shared->mutex);
  for (;;) {
    ++shared->idle;
    shared->asked.wait(lock, [&] { return shared->closed || !shared->questions.empty(); });
    --shared->idle;
    if (shared->closed) break;
    const Shared::Question question = std::move(shared->questions.front());
    shared->questions.pop_front();
    lock.unlock();
    HostAddresses found = shared->look_up(question.host);
    for (SocketAddress& address : found.addresses) set_port(address, question.port);
    lock.lock();
    if (shared->closed) break;
    shared->answers.push_back({.id = question.id,
                               .addresses = std::move(found.addresses),
                               .error = std::move(found.error)});
    const std::uint64_t one = 1;
    static_cast<void>(!::write(shared->wake.get(), &one, sizeof one));
  }
  --shared->threads;
}

Status Resolver::ask(std::uint64_t id, const std::string& host, std::uint16_t port) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->questions.size() >= kResolverQueueMax) {
    return Status(Code::overloaded, "too many host names wait to be resolved (limit 256)");
  }
  if (shared_->idle <= shared_->questions.size() && shared_->threads < kResolverThreadsMax) {
    try {
      std::thread([shared = shared_] { work(shared); }).detach();
      ++shared_->threads;
    } catch (const std::system_error& error) {
      if (shared_->threads == 0) {
        return Status::with_detail(Code::resource_exhausted,
                                   std::string("no thread to resolve a host name: ") + error.what(),
                                   Ran::no, error.code().value());
      }
    }
  }
  shared_->questions.push_back({.id = id, .host = host, .port = port});
  shared_->asked.notify_one();
  return {};
}

void Resolver::forget(std::uint64_t id) {
  const std::lock_guard lock(shared_->mutex);
  std::erase_if(shared_->questions, [id](const auto& question) { return question.id == id; });
}

bool Resolver::take(Answer& out) {
  std::uint64_t count = 0;
  static_cast<void>(!::read(shared_->wake.get(), &count, sizeof count));
  const std::lock_guard lock(shared_->mutex);
  if (shared_->answers.empty()) return false;
  out = std::move(shared_->answers.front());
  shared_->answers.pop_front();
  return true;
}

}  // namespace pawl::fabric
