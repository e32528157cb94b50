// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace pawl::testing {

namespace {

constexpr std::chrono::seconds kLimit{100};  // a hang; nothing here takes as long
constexpr std::chrono::milliseconds kStep{20};

/// The parent of a process; 0 if it is gone.
pid_t parent_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(end_of_name + 1));
  char state = 0;
  pid_t parent = 0;
  fields >> state >> parent;
  return state == 'Z' ? 0 : parent;
}

/// Only after it was exec'd: until then it shows what its parent was started with.
bool has_argument(pid_t pid, const std::string& argument) {
  std::ifstream arguments("/proc/" + std::to_string(pid) + "/cmdline");
  for (std::string one; std::getline(arguments, one, '\0');) {
    if (one == argument) return true;
  }
  return false;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  DIR* all = ::opendir("/proc");
  if (all == nullptr) return children;
  while (const dirent* entry = ::readdir(all)) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid > 0 && parent_of(pid) == parent) children.push_back(pid);
  }
  ::closedir(all);
  return children;
}

}  // namespace

std::string Command::path() {
  const char* bin = std::getenv("PAWL_BIN_DIR");
  if (bin == nullptr) return {};
  std::string path = std::string(bin) + "/pawl";
  return ::access(path.c_str(), X_OK) == 0 ? path : std::string();
}

Command::Command(const std::string& arguments, unsigned short columns) {
  std::vector<std::string> words{path()};
  std::istringstream text(arguments);
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int fd = -1;
  if (columns > 0) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = ::forkpty(&fd, nullptr, nullptr, &size);
  } else {
    int pipe_fds[2] = {-1, -1};
    if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    fd = pipe_fds[0];
    if (pid_ == 0) {
      ::dup2(pipe_fds[1], STDOUT_FILENO);
      ::dup2(pipe_fds[1], STDERR_FILENO);
    }
    ::close(pipe_fds[1]);
  }
  if (pid_ == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  output_fd_.reset(fd);
}

Command::~Command() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Command::read_until(const std::function<bool(const std::string&)>& enough) {
  const auto started = std::chrono::steady_clock::now();
  while (!enough(output_)) {
    if (std::chrono::steady_clock::now() - started > kLimit) return false;
    pollfd ready{.fd = output_fd_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(kStep.count())) <= 0) continue;
    char buffer[4096];
    const ssize_t bytes = ::read(output_fd_.get(), buffer, sizeof buffer);
    if (bytes <= 0) return false;  // the end; of a terminal it is an error
    output_.append(buffer, static_cast<std::size_t>(bytes));
  }
  return true;
}

pid_t Command::child(const std::string& argument) const {
  const auto started = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - started < kLimit) {
    for (const pid_t pid : children_of(pid_)) {
      if (has_argument(pid, argument)) return pid;
    }
    std::this_thread::sleep_for(kStep);
  }
  return -1;
}

void Command::signal(int number) const { ::kill(pid_, number); }

int Command::wait() {
  const auto started = std::chrono::steady_clock::now();
  read_until([](const std::string&) { return false; });
  int status = -1;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() - started > kLimit) return -1;  // killed with this object
    std::this_thread::sleep_for(kStep);
  }
  pid_ = -1;
  return status;
}

}  // namespace pawl::testing
