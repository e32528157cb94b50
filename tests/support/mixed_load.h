// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pawl/channel.h"
#include "pawl/node.h"
#include "pawl/pool.h"
#include "pawl/status.h"
#include "pawl/task.h"
#include "support/function_service.h"

namespace pawl::testing {

/// What became of the calls of a load. Any thread.
struct LoadTally {
  std::atomic<std::uint64_t> calls{0}, ok{0}, dropped{0};
  std::atomic<std::uint64_t> late_tickets{0};  ///< of those that are ok
  std::atomic<std::uint64_t> wrong{0};         ///< handed over with bytes of something else
  std::atomic<std::uint64_t> maybe_ran{
      0};  ///< failed, and the handler is not known not to have run
  std::array<std::atomic<std::uint64_t>, 256> failed{};  ///< by code

  [[nodiscard]] std::uint64_t failed_with(Code code) const {
    return failed[static_cast<std::size_t>(code)];
  }
  [[nodiscard]] std::uint64_t failures() const;
  [[nodiscard]] std::uint64_t ended() const { return ok + dropped + failures(); }
  /// "120 calls: 100 ok, 3 dropped, 0 tickets too late, deadline 17".
  [[nodiscard]] std::string to_string() const;
};

/// Calls of every form, by several workers at once, with every byte looked at by whoever gets it.
/// The service and the callers may be in different processes.
class MixedLoad {
 public:
  enum class Form : std::uint8_t {
    echo,
    long_echo,  ///< in several messages
    note,       ///< one-way
    get,
    get_into,   ///< a buffer that the caller holds from before the call
    small_get,  ///< inside the answer
    put,
    small_put,
    back,    ///< its handler calls the caller back, by echo and get
    ticket,  ///< one is asked for, and pulled by
  };
  struct Options {
    std::size_t bytes_max = 100'000;  ///< of one bulk call; more than 4096
    Duration deadline = std::chrono::seconds(30);
    double drop = 0;  ///< calls that are dropped at a random moment
    Duration drop_after_max = std::chrono::milliseconds(2);
  };
  explicit MixedLoad(const Options& options) : options_(options) {}

  /// The methods that `run` calls.
  void serve(FunctionService& service);
  /// `width` workers make calls from `node`, `calls` in all, or until `stop`. Ends when all did.
  Task<void> run(Node& node, Channel channel, std::size_t calls, std::size_t width);
  void stop() { stopped_ = true; }
  /// No other forms from now on. While nothing runs.
  void only(std::vector<Form> forms) { forms_ = std::move(forms); }
  /// Those that need no more memory than the call's own, and no services of the caller's.
  static const std::vector<Form> kPlainForms;
  static const std::vector<Form> kAllForms;
  static std::vector<Form> plain_but(Form form) {
    std::vector<Form> forms = kPlainForms;
    std::erase(forms, form);
    return forms;
  }

  [[nodiscard]] LoadTally& tally() { return tally_; }
  /// Pulled by handlers and not what the caller said it lent: such calls fail with `corrupt`. Any
  /// thread.
  [[nodiscard]] std::uint64_t served_wrong() const { return served_wrong_; }

 private:
  struct Request {
    std::uint64_t tag = 0, bytes = 0;
  };
  Task<Result<Payload>> get(Call& call, std::span<const std::byte> request, Download& out);
  Task<Result<Payload>> put(Call& call, std::span<const std::byte> request, Upload& in);
  Task<Result<Payload>> back(Call& call, std::span<const std::byte> request);
  Task<Result<Payload>> ticket(Call& call, std::span<const std::byte> request);

  Task<void> work(Node& node, Channel channel, std::size_t calls, std::uint64_t seed);
  Task<Status> one(Node& node, Channel channel, Form form, std::uint64_t tag);
  Task<Status> echo(Channel channel, std::size_t bytes, std::uint64_t tag);
  Task<Status> note(Channel channel, std::uint64_t tag);
  Task<Status> get_from(Pool& pool, Channel channel, std::size_t bytes, std::uint64_t tag,
                        bool into_own);
  Task<Status> call_back(Channel channel, std::uint64_t tag);
  Task<Status> pull_by_ticket(Node& node, Channel channel, std::size_t bytes, std::uint64_t tag);
  Task<Status> put_to(Pool& pool, Channel channel, std::size_t bytes, std::uint64_t tag);
  [[nodiscard]] CallOptions call_options() const;
  void count(const Status& status);

  const Options options_;
  std::vector<Form> forms_ = kPlainForms;
  LoadTally tally_;
  std::atomic<std::uint64_t> next_tag_{1};
  std::atomic<std::uint64_t> served_wrong_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace pawl::testing
