// SPDX-License-Identifier: Apache-2.0
#include "kit/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pawl/time.h"

namespace pawl::kit {

namespace {

constexpr Duration kLimit = 60s;

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace

std::string own_host() {
  const auto id = static_cast<unsigned>(::getpid());
  return "127." + std::to_string(id / 250 % 250 + 1) + "." + std::to_string(id % 250 + 1) + ".1";
}

void Process::start(std::string_view role, Guard guard, const std::string& address) {
  kill();
  ::signal(SIGPIPE, SIG_IGN);
  name_ = role;
  input_.clear();
  lines_.clear();
  auto [its_in, in] = make_pipe();
  auto [out, its_out] = make_pipe();
  std::vector<std::string> words{"test_kit", "--actor",
                                 name_,      std::string(guard_name(guard)),
                                 address,    std::to_string(::getpid())};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, its_in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, its_out.get(), STDOUT_FILENO);
  const char* const server_fabric = std::getenv("PAWL_KIT_SERVER_FABRIC");
  std::string fabric = server_fabric != nullptr ? server_fabric : "";
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool names = std::string_view(*variable).starts_with("PAWL_FABRIC=");
    if (!names || fabric.empty() || role == "client") environment.push_back(*variable);
  }
  fabric.insert(0, "PAWL_FABRIC=");
  if (server_fabric != nullptr && role != "client") environment.push_back(fabric.data());
  environment.push_back(nullptr);
  const int error =
      ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ASSERT_EQ(error, 0) << "the " << name_ << " process cannot be started";
  in_ = std::move(in);
  out_ = std::move(out);
  its_in.reset();
  its_out.reset();
  address_ = expect("ready");
}

void Process::say(const std::string& line) {
  const std::string whole = line + "\n";
  EXPECT_EQ(::write(in_.get(), whole.data(), whole.size()), static_cast<ssize_t>(whole.size()))
      << "to the " << name_ << ": " << line;
}

bool Process::take(std::string_view word, std::string& rest) {
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    const std::size_t end = std::min(line->find(' '), line->size());
    if (std::string_view(*line).substr(0, end) != word) continue;
    rest = end == line->size() ? "" : line->substr(end + 1);
    lines_.erase(line);
    return true;
  }
  return false;
}

bool Process::read_some(int timeout_ms) {
  std::array<char, 4096> buffer;
  pollfd out{.fd = out_.get(), .events = POLLIN, .revents = 0};
  const int ready = ::poll(&out, 1, timeout_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return true;
  const ssize_t n = ready < 0 ? -1 : ::read(out_.get(), buffer.data(), buffer.size());
  if (n <= 0) return false;
  input_.append(buffer.data(), static_cast<std::size_t>(n));
  for (std::size_t end; (end = input_.find('\n')) != std::string::npos;) {
    lines_.push_back(input_.substr(0, end));
    input_.erase(0, end + 1);
  }
  return true;
}

std::string Process::expect(std::string_view word) {
  const SteadyClock clock;
  const TimePoint limit = clock.now() + kLimit;
  std::string rest;
  while (!take(word, rest)) {
    const bool there = read_some(1000);
    if (there && clock.now() < limit) continue;
    std::string heard;
    for (const std::string& line : lines_) heard += "\n  " + line;
    ADD_FAILURE() << "the " << name_ << (there ? " does not say \"" : " is gone before it says \"")
                  << word << "\"; it said:" << heard;
    return "";
  }
  return rest;
}

bool Process::came(std::string_view word) {
  while (true) {
    const std::size_t before = lines_.size() + input_.size();
    if (!read_some(0) || lines_.size() + input_.size() == before) break;
  }
  std::string rest;
  return take(word, rest);
}

void Process::wait_until_stopped() {
  int status = 0;
  ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  ASSERT_TRUE(WIFSTOPPED(status)) << "the " << name_ << " ended instead of stopping";
}

void Process::stop() {
  ::kill(pid_, SIGSTOP);
  wait_until_stopped();
}

void Process::resume() { ::kill(pid_, SIGCONT); }

void Process::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace pawl::kit
