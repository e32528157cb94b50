// SPDX-License-Identifier: Apache-2.0
// The parent process of `pawl demo`: the corpus, one row after the other, the verdict.
#include "demo.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "demo_corpus.h"
#include "demo_folder.h"
#include "demo_hold.h"
#include "demo_json.h"
#include "demo_row.h"
#include "demo_table.h"
#include "demo_text.h"
#include "demo_verdict.h"
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

constexpr Duration kDeadlineMin = 40ms;
constexpr Duration kDeadlineMax = 250ms;
constexpr std::int64_t kDeadlineFactor = 2;  // of what 99 % of small calls need at most
constexpr Duration kTrialMax = 500ms;

RowSettings settings_of(const DemoOptions& options, const Corpus& corpus, Guard guard) {
  RowSettings settings{};
  settings.guard = guard;
  settings.hold = true;
  const auto keep = [](const std::string& text, auto& to) { text.copy(to.data(), to.size() - 1); };
  keep(options.places.server_fabric, settings.server_fabric);
  keep(options.places.client_fabric, settings.client_fabric);
  keep(options.places.listen, settings.listen);
  settings.seed = options.seed;
  settings.run = Duration(static_cast<std::int64_t>(options.seconds * 1e9)) /
                 static_cast<std::int64_t>(options.guards.size());
  settings.deadline = options.deadline;
  set_files(settings, corpus);
  return settings;
}

/// On a busy machine a short deadline would pass before there is a READ to be held.
Result<Duration> find_deadline(const DemoOptions& options, const Corpus& corpus) {
  RowSettings settings = settings_of(options, corpus, Guard::verify);
  settings.hold = false;
  settings.deadline = 5s;
  settings.run = std::min(settings.run / 4, kTrialMax);
  const Result<Row> row = run_row(settings, corpus, [](const Row&) { return g_signal == 0; });
  if (!row.ok()) return row.status();
  if (row->ok == 0) return kDeadlineMax;
  const Duration needed(static_cast<std::int64_t>(row->p99_small_deadline_ns) * kDeadlineFactor);
  return std::clamp(needed, kDeadlineMin, kDeadlineMax);
}

std::string what_runs(const DemoOptions& options, const Corpus& corpus) {
  const RowSettings settings = settings_of(options, corpus, options.guards[0]);
  std::size_t largest = 0;
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    largest = std::max(largest, corpus.file(i).size());
  }
  const auto ms = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  };
  return fmt::format(
      "{} {}, {:.1f} MB, stored and fetched over {} by two processes, {:.1f} s for each guard.\n"
      "READs are held inside the fabric for 0 to {} x the deadline of their call ({} ms for small "
      "files, {} ms for the largest) at random;\n"
      "a buffer is used again as soon as its request is over, also when that timed out.\n"
      "What a late READ brings to a call that is over is dropped unseen; else the guard decides. "
      "Seed {}.\n",
      corpus.size(), options.dir.empty() ? "files" : "files of " + options.dir,
      static_cast<double>(corpus.total_bytes()) / 1e6, options.places.text,
      std::chrono::duration<double>(settings.run).count(), kHoldDeadlines, ms(settings.deadline),
      ms(deadline_of(settings, largest)), options.seed);
}

Result<Corpus> corpus_of(const DemoOptions& options) {
  if (options.dir.empty()) return Corpus::make(options.seed);
  const Result<Folder> folder = Folder::scan(options.dir, [] { return g_signal == 0; });
  if (!folder.ok()) return folder.status();
  Result<Corpus> corpus = Corpus::read(*folder);
  const std::string remarks = folder->remarks();
  if (corpus.ok() && !remarks.empty()) {
    fmt::print("{}", wrapped(remarks + "\n", terminal_columns()));
  }
  return corpus;
}

/// The rows one after the other. Not ok, with those that were complete: a process failed, or a
/// signal came (Code::cancelled).
Status run_rows(DemoOptions options, std::vector<Row>& rows) {
  const Result<Corpus> corpus = corpus_of(options);
  if (!corpus.ok()) return corpus.status();
  if (options.deadline == Duration{0}) {
    const Result<Duration> deadline = find_deadline(options, *corpus);
    if (!deadline.ok()) return deadline.status();
    options.deadline = *deadline;
  }
  fmt::print("{}\n", wrapped(what_runs(options, *corpus), terminal_columns()));
  Table table(options.guards);
  for (const Guard guard : options.guards) {
    const auto show = [&table](const Row& row) {
      table.show(row);
      return g_signal == 0;
    };
    Result<Row> row = run_row(settings_of(options, *corpus, guard), *corpus, show);
    if (!row.ok()) return row.status();
    table.complete(*row);
    rows.push_back(*std::move(row));
  }
  table.end();
  return {};
}

void complain(const Status& status) { fmt::print(stderr, "pawl demo: {}\n", status.what()); }

}  // namespace

int run_demo(const DemoOptions& options) {
  Result<JsonFile> json = JsonFile::open(options.json);
  if (!json.ok()) {
    complain(json.status());
    return kFailed;
  }
  const SignalNotes signals;
  std::vector<Row> rows;
  const Status run = run_rows(options, rows);
  const Verdict verdict =
      run.ok() ? judge(rows) : Verdict{false, fmt::format("FAILED: {}.", run.what())};
  const Status written = json->write(to_json(rows, verdict, options.seed));
  if (!written.ok()) complain(written);
  if (!run.ok()) {
    if (run.code() == Code::cancelled) SignalNotes::obey();
    complain(run);
    return exit_code_of(run);
  }
  fmt::print("\n{}", wrapped(fmt::format("pawl demo {}\n", verdict.sentence), terminal_columns()));
  return verdict.passed && written.ok() ? kDone : kFailed;
}

}  // namespace pawl::tools
