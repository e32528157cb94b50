// SPDX-License-Identifier: Apache-2.0
// The parent process of `pawl demo`: the corpus, one row after the other, the verdict.
#include "demo.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "demo_corpus.h"
#include "demo_row.h"
#include "demo_table.h"
#include "exit_code.h"

namespace pawl::tools {

namespace {

volatile sig_atomic_t g_signal = 0;
void on_signal(int number) { g_signal = number; }

/// Notes Ctrl+C and its like while it lives.
class SignalNotes {
 public:
  SignalNotes() {
    struct sigaction action {};
    action.sa_handler = &on_signal;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  }
  /// Ends this process by the signal that came.
  static void obey() {
    ::signal(g_signal, SIG_DFL);
    ::raise(g_signal);
  }
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

constexpr Duration kDeadlineMin = 40ms;
constexpr Duration kDeadlineMax = 250ms;
constexpr std::int64_t kDeadlineFactor = 2;  // of what 99 % of small calls need at most
constexpr Duration kTrialMax = 500ms;

RowSettings settings_of(const DemoOptions& options, Guard guard) {
  RowSettings settings{};
  settings.guard = guard;
  settings.hold = true;
  options.fabric.copy(settings.fabric.data(), settings.fabric.size() - 1);
  settings.seed = options.seed;
  settings.run = Duration(static_cast<std::int64_t>(options.seconds * 1e9)) /
                 static_cast<std::int64_t>(options.guards.size());
  settings.deadline = options.deadline;
  return settings;
}

/// On a busy machine a short deadline would pass before there is a READ to be held.
Result<Duration> find_deadline(const DemoOptions& options, const Corpus& corpus) {
  RowSettings settings = settings_of(options, Guard::verify);
  settings.hold = false;
  settings.deadline = 5s;
  settings.run = std::min(settings.run / 4, kTrialMax);
  const Result<Row> row = run_row(settings, corpus, [](const Row&) { return g_signal == 0; });
  if (!row.ok()) return row.status();
  const Duration needed(static_cast<std::int64_t>(row->p99_small_ns) * kDeadlineFactor);
  return std::clamp(needed, kDeadlineMin, kDeadlineMax);
}

int fail(const Status& status) {
  fmt::print(stderr, "pawl demo: {}\n", status.what());
  return exit_code_of(status);
}

std::string what_runs(const DemoOptions& options, const RowSettings& settings,
                      const Corpus& corpus) {
  return fmt::format(
      "{} {}, {:.1f} MB, stored and fetched over {} by two processes, {:.1f} s for each guard.\n"
      "READs are held inside the fabric for 0 to 5 x the deadline ({} ms for small files) at "
      "random;"
      "\na buffer is used again as soon as its request is over, also when that timed out. Seed "
      "{}.\n"
      "\n",
      corpus.size(), options.dir.empty() ? "files" : "files of " + options.dir,
      static_cast<double>(corpus.total_bytes()) / 1e6, options.fabric,
      std::chrono::duration<double>(settings.run).count(),
      std::chrono::duration_cast<std::chrono::milliseconds>(settings.deadline).count(),
      options.seed);
}

}  // namespace

int run_demo(const DemoOptions& given) {
  DemoOptions options = given;
  File json;
  if (!options.json.empty()) {
    json.reset(std::fopen(options.json.c_str(), "w"));
    if (!json) {
      fmt::print(stderr, "pawl demo: cannot write {}\n", options.json);
      return kFailed;
    }
  }
  Result<Corpus> corpus =
      options.dir.empty() ? Corpus::make(options.seed) : Corpus::read(options.dir);
  if (!corpus.ok()) return fail(corpus.status());

  const SignalNotes signals;
  if (options.deadline == Duration{0}) {
    const Result<Duration> deadline = find_deadline(options, *corpus);
    if (g_signal != 0) SignalNotes::obey();
    if (!deadline.ok()) return fail(deadline.status());
    options.deadline = *deadline;
  }
  fmt::print("{}", what_runs(options, settings_of(options, options.guards[0]), *corpus));
  Table table(options.guards);
  std::vector<Row> rows;
  for (const Guard guard : options.guards) {
    const auto show = [&table](const Row& row) {
      table.show(row);
      return g_signal == 0;
    };
    Result<Row> row = run_row(settings_of(options, guard), *corpus, show);
    if (g_signal != 0) SignalNotes::obey();
    if (!row.ok()) return fail(row.status());
    table.complete(*row);
    rows.push_back(*std::move(row));
  }

  const Verdict verdict = judge(rows);
  if (json && std::fputs(to_json(rows, verdict, options.seed).c_str(), json.get()) < 0) {
    fmt::print(stderr, "pawl demo: cannot write {}\n", options.json);
    return kFailed;
  }
  fmt::print("\npawl demo {}\n", verdict.sentence);
  return verdict.passed ? kDone : kFailed;
}

}  // namespace pawl::tools
