// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"

namespace pawl::tools {

namespace {

Status how_it_ended(const std::string& name, int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return Status::with_detail(Code::internal, fmt::format("the {} was ended by signal {} ({})",
                                                           name, number, ::strsignal(number)));
  }
  if (WEXITSTATUS(status) == 0) return {};
  return Status::with_detail(
      Code::internal, fmt::format("the {} ended with exit code {}", name, WEXITSTATUS(status)));
}

}  // namespace

Result<Child> Child::start(std::string name, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"pawl"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return spawn(std::move(name), "/proc/self/exe", std::move(words), true);
}

Result<Child> Child::start_program(std::string name, const std::string& program,
                                   const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return spawn(std::move(name), program.c_str(), std::move(words), false);
}

Result<Child> Child::spawn(std::string name, const char* path, std::vector<std::string> words,
                           bool own) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  if (own) ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a group of its own
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (!own) ::posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, path, &files, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return Status::with_detail(Code::resource_exhausted, fmt::format("the {} cannot be started: {}",
                                                                     name, std::strerror(error)));
  }
  return Child(std::move(name), pid);
}

Child::Child(Child&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      status_(std::move(other.status_)) {}

Child::~Child() { kill(); }

std::optional<Status> Child::ended() {
  if (pid_ < 0) return status_;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got != pid_) return std::nullopt;
  pid_ = -1;
  status_ = how_it_ended(name_, status);
  return status_;
}

std::optional<Status> Child::wait(Duration limit) {
  std::optional<Status> status = ended();
  if (status) return status;
  // Asleep until then: whoever measures something must not be disturbed.
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd readable{.fd = end.get(), .events = POLLIN, .revents = 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  const int timeout = static_cast<int>(std::min<std::int64_t>(ms, INT_MAX));
  while (end && ::poll(&readable, 1, timeout) < 0 && errno == EINTR) {
  }
  return ended();
}

void Child::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it ended before
}

void pause_for(Duration duration) {
  const timespec time{duration.count() / 1'000'000'000, duration.count() % 1'000'000'000};
  ::nanosleep(&time, nullptr);
}

}  // namespace pawl::tools
