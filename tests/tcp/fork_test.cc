// SPDX-License-Identifier: Apache-2.0
// A process with nodes forks while their calls run: whatever the child does, its parent goes on,
// and a child that uses what it inherited is told so. Case 85.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kPut = make_method("test.Fork/Put", BulkDirection::upload);
constexpr Method kSystem = make_method("test.Fork/System");
constexpr std::size_t kBytes = 100'000;

class Fork : public ::testing::Test {
 protected:
  Fork() {
    service_.add(kPut,
                 [](Call& call, std::span<const std::byte> request, Upload& in,
                    Download&) -> Task<Result<Payload>> {
                   auto pulled = co_await ok(in.pull(call.pool()));
                   const auto bytes = std::as_const(pulled).bytes();
                   const bool good = bytes.size() == kBytes && bytes[0] == request[0] &&
                                     std::memcmp(bytes.data(), bytes.data() + 1, kBytes - 1) == 0;
                   co_return Payload::of(good ? "good" : "bad");
                 });
    service_.add(
        kSystem,
        [](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          co_return Payload::of(std::system("true") == 0 ? "good" : "bad");
        });
  }
  static NodeOptions tcp() {
    NodeOptions options;
    options.fabric = "tcp";
    return options;
  }
  void SetUp() override { start("127.0.0.1:0"); }
  void start(const std::string& address) {
    server_ = std::make_unique<Node>(tcp());
    Result<Server> serving = server_->serve(address, service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
    server_->run_background();
    client_ = std::make_unique<Node>(tcp());
    client_->run_background();
    channel_ = client_->channel(serving_->address());
    put();
  }
  void stop() {
    channel_ = Channel();
    client_.reset();
    serving_.reset();
    server_.reset();
  }
  void put() {
    Result<Buffer> buffer = block(client_->pool().acquire(kBytes));
    ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
    const char tag = static_cast<char>('a' + puts_++ % 26);
    std::memset(buffer->bytes().data(), tag, kBytes);
    const Outcome<Payload> outcome = block(
        channel_.call(kPut, Payload::of(std::string(1, tag)), lend((*std::move(buffer)).freeze())));
    ASSERT_TRUE(outcome.ok()) << outcome.to_string();
    EXPECT_EQ(outcome->text(), "good");
  }
  /// Forks while another thread makes calls; the child runs `act`, which does not return, and must
  /// exit with 0.
  void fork_under_load(const std::function<void()>& act) {
    std::atomic<bool> over{false};
    std::atomic<int> before{0};
    std::thread caller([&] {
      while (!over) {
        put();
        ++before;
      }
    });
    while (before < 5) std::this_thread::yield();
    for (int i = 0; i < 3; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(20);  // a child that hangs is killed, and noticed
        act();
        ::_exit(99);
      }
      ASSERT_GT(child, 0);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
      EXPECT_EQ(WEXITSTATUS(status), 0);
      const int seen = before;
      while (before < seen + 5) std::this_thread::yield();  // the parent's calls go on
    }
    over = true;
    caller.join();
    EXPECT_EQ(client_->stats().connections_lost, 0u);
    EXPECT_EQ(client_->stats().data_endpoints_lost, 0u);
    EXPECT_EQ(server_->stats().data_endpoints_lost, 0u);
  }
  /// Sockets, event and timer descriptors of a process.
  static int own_kinds(pid_t pid) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    int count = 0;
    DIR* const list = ::opendir(folder.c_str());
    EXPECT_NE(list, nullptr);
    while (const dirent* entry = ::readdir(list)) {
      char target[128] = {};
      const std::string path = folder + "/" + entry->d_name;
      if (::readlink(path.c_str(), target, sizeof(target) - 1) <= 0) continue;
      const std::string_view name(target);
      count += name.starts_with("socket:") || name.starts_with("anon_inode:");
    }
    ::closedir(list);
    return count;
  }

  testing::FunctionService service_;
  std::unique_ptr<Node> server_, client_;
  std::optional<Server> serving_;
  Channel channel_;
  int puts_ = 0;
};

TEST_F(Fork, AChildThatExitsExecsOrClosesWhatItInheritedHarmsNobody) {
  fork_under_load([] { ::_exit(0); });
  fork_under_load([] { ::execl("/bin/true", "true", nullptr); });
  fork_under_load([] {
    ::close_range(3, ~0u, 0);
    ::_exit(0);
  });
  for (int i = 0; i < 10; ++i) {
    const Outcome<Payload> outcome = block(channel_.call(kSystem, Payload()));
    ASSERT_TRUE(outcome.ok()) << outcome.to_string();
    EXPECT_EQ(outcome->text(), "good");
  }
}

TEST_F(Fork, AChildThatUsesAnInheritedNodeIsRefusedBySentence) {
  const auto refused = [](const Status& status) {
    return status.code() == Code::failed_precondition &&
           status.what().find("forked") != std::string_view::npos;
  };
  fork_under_load([&] {
    if (!refused(block(channel_.call(kSystem, Payload())).status())) ::_exit(1);
    if (!refused(client_->serve("127.0.0.1:0", service_).status())) ::_exit(2);
    Channel another = client_->channel("127.0.0.1:1");
    if (!refused(block(another.connect()))) ::_exit(3);
    another = Channel();
    stop();  // the destructors of all that was inherited
    ::_exit(0);
  });
}

TEST_F(Fork, AChildMayHaveANodeOfItsOwn) {
  const std::string address = serving_->address();
  fork_under_load([&] {
    NodeOptions options = tcp();
    options.pool.grow_inline = true;  // no threads: the thread sanitizer knows none in a child
    Node own(options);
    const Outcome<Payload> outcome = own.block_on(own.channel(address).call(kSystem, Payload()));
    ::_exit(outcome.ok() && outcome->text() == "good" ? 0 : 1);
  });
}

TEST_F(Fork, AChildThatTurnsAnInheritedNodeEndsItself) {
  Node idle(tcp());
  const int errors = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  for (const bool background : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(errors, STDERR_FILENO);
      ::alarm(20);
      if (background) idle.run_background();
      idle.run_once();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
  }
  ::close(errors);
  put();
}

// It has none of the parent's descriptors, so that the address is free as soon as the parent gives
// it up, and peers see that.
TEST_F(Fork, AChildThatExecedKeepsNoDescriptorAndNoAddress) {
  int there[2];
  ASSERT_EQ(::pipe2(there, O_CLOEXEC), 0);
  const int before = own_kinds(::getpid());
  EXPECT_GT(before, 8);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sleep", "sleep", "600", nullptr);
    ::_exit(1);
  }
  ::close(there[1]);
  char byte = 0;
  EXPECT_EQ(::read(there[0], &byte, 1), 0) << "closed by the exec";
  ::close(there[0]);
  const int inherited = own_kinds(child);
  const std::string address = serving_->address();
  stop();
  EXPECT_EQ(inherited, own_kinds(::getpid())) << "only what is there without any node";
  start(address);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace pawl
