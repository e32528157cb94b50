// SPDX-License-Identifier: Apache-2.0
// The parent process of `pawl bench`: what is sampled, and what is said of it.
#include "bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench_iperf.h"
#include "bench_machine.h"
#include "bench_pairs.h"
#include "bench_sample.h"
#include "bench_table.h"
#include "bench_verdict.h"
#include "demo_json.h"
#include "exit_code.h"
#include "json.h"
#include "pawl/version.h"

namespace pawl::tools {

namespace {

constexpr Duration kLook = 500ms;  // at the load, before the run
constexpr std::uint32_t kSocketBufferBytes = 256u << 10;
constexpr std::uint64_t kIperfBytes = std::uint64_t{1} << 20;  // it has rows of this size
constexpr std::uint64_t kCallBytes = 64;                       // of the call beside the guards

/// One run: samples cell after cell, prints its lines, keeps its rows.
class Bench {
 public:
  Bench(const BenchOptions& options, const BenchMachine& machine)
      : options_(options), machine_(machine) {}

  Status run() {
    fmt::print("{}", header_of(columns()));
    std::fflush(stdout);
    switch (options_.kind) {
      case BenchKind::echo:
        return echo();
      case BenchKind::bulk:
        return bulk();
      case BenchKind::guards:
        return guards();
      case BenchKind::conns:
        return connections();
      case BenchKind::storm:
        break;
    }
    return storm();
  }
  [[nodiscard]] const std::vector<BenchRow>& rows() const { return rows_; }

 private:
  std::vector<BenchColumn> columns() const {
    switch (options_.kind) {
      case BenchKind::echo:
        return echo_columns(is_against("grpc"));
      case BenchKind::bulk:
        return bulk_columns();
      case BenchKind::guards:
        return guard_columns();
      case BenchKind::conns:
        return connection_columns();
      case BenchKind::storm:
        break;
    }
    return storm_columns();
  }
  bool is_against(const char* system) const {
    return std::ranges::count(options_.against, system) > 0;
  }

  SampleSettings settings(Shape shape, std::uint64_t size, std::uint32_t outstanding,
                          bool spin) const {
    SampleSettings settings{};
    settings.shape = shape;
    settings.size = size;
    settings.outstanding = outstanding;
    settings.spin = spin;
    settings.calls = options_.calls;
    settings.run = Duration(static_cast<std::int64_t>(options_.seconds * 1e9));
    const std::vector<int>& cores = machine_.cores();
    settings.server_core = cores.empty() ? -1 : cores[0];
    settings.client_core = cores.empty() ? -1 : cores[1];
    settings.guard = options_.guards[0];
    const auto keep = [](const std::string& text, auto& to) {
      text.copy(to.data(), to.size() - 1);
    };
    keep(options_.places.server_fabric, settings.server_fabric);
    keep(options_.places.client_fabric, settings.client_fabric);
    keep(options_.places.listen, settings.listen);
    return settings;
  }

  static Contender pawl(const SampleSettings& settings) {
    Contender contender;
    contender.system = "pawl";
    contender.settings = settings;
    contender.sample = &run_sample;
    return contender;
  }
  static Contender raw(SampleSettings settings, std::uint32_t socket_buffer_bytes) {
    settings.system = System::raw;
    settings.socket_buffer_bytes = socket_buffer_bytes;
    Contender contender = pawl(settings);
    contender.system = "raw";
    return contender;
  }
  /// It sleeps when it likes to, whatever the others do.
  static Contender grpc(SampleSettings settings, bool pinned) {
    settings.system = System::grpc;
    settings.spin = false;
    if (!pinned) settings.server_core = settings.client_core = -1;
    Contender contender = pawl(settings);
    contender.system = "grpc";
    contender.missing = grpc_missing();
    return contender;
  }
  static Contender iperf(SampleSettings settings) {
    settings.spin = false;
    settings.outstanding = 1;
    Contender contender;
    contender.system = "iperf3";
    contender.settings = settings;
    contender.missing = iperf_missing();
    contender.sample = &run_iperf;
    return contender;
  }

  void show(std::vector<BenchRow> rows) {
    for (BenchRow& row : rows) {
      fmt::print("{}", line_of(columns(), row));
      rows_.push_back(std::move(row));
    }
    std::fflush(stdout);
  }

  Status echo() {
    for (const bool spin : options_.spins) {
      for (const std::uint64_t size : options_.sizes) {
        for (const std::uint32_t outstanding : options_.outstanding) {
          if (Status done = echo_cell(settings(Shape::echo, size, outstanding, spin)); !done.ok()) {
            return done;
          }
        }
      }
    }
    return {};
  }

  Status echo_cell(const SampleSettings& cell) {
    std::vector<Contender> contenders{pawl(cell)};
    if (is_against("raw")) contenders.push_back(raw(cell, 0));
    if (is_against("grpc")) {
      // Its threads may gain or lose by having one core for each process.
      for (const bool pinned : {true, false}) contenders.push_back(grpc(cell, pinned));
    }
    Result<std::vector<BenchRow>> rows = run_pairs(std::move(contenders), options_.pairs);
    if (!rows.ok()) return rows.status();
    keep_better(*rows, "grpc", Figure::calls_per_s);
    compare_with(*rows, "raw");
    compare_with(*rows, "grpc");
    show(*std::move(rows));
    return {};
  }

  Status bulk() {
    for (const bool spin : options_.spins) {
      for (const std::uint64_t size : options_.sizes) {
        for (const Shape shape : {Shape::download, Shape::upload}) {
          for (const std::uint32_t outstanding : options_.outstanding) {
            if (Status done = bulk_cell(settings(shape, size, outstanding, spin)); !done.ok()) {
              return done;
            }
          }
        }
      }
    }
    return {};
  }

  Status bulk_cell(const SampleSettings& cell) {
    std::vector<Contender> contenders;
    for (const Guard guard : options_.guards) {
      SampleSettings guarded = cell;
      guarded.guard = guard;
      contenders.push_back(pawl(guarded));
    }
    if (is_against("raw")) {
      contenders.push_back(raw(cell, 0));
      contenders.push_back(raw(cell, kSocketBufferBytes));
    }
    // A stream: the same for all numbers of calls under way, and shown once.
    const bool first = cell.outstanding == options_.outstanding[0];
    if (is_against("iperf3") && first && cell.size == kIperfBytes)
      contenders.push_back(iperf(cell));
    Result<std::vector<BenchRow>> rows = run_pairs(std::move(contenders), options_.pairs);
    if (!rows.ok()) return rows.status();
    keep_better(*rows, "raw", Figure::goodput_bytes_per_s);
    compare_with(*rows, "raw");
    show(*std::move(rows));
    return {};
  }

  /// Of the two rows of a system, if it has two, the one with more of `figure`.
  static void keep_better(std::vector<BenchRow>& rows, const char* system, Figure figure) {
    const auto is_it = [system](const BenchRow& row) { return row.system == system; };
    if (std::ranges::count_if(rows, is_it) < 2) return;
    const auto first = std::ranges::find_if(rows, is_it);
    const bool worse = first[0].spread(figure).median < first[1].spread(figure).median;
    rows.erase(worse ? first : first + 1);
  }

  /// All the others with the row of `system`, if there is one.
  static void compare_with(std::vector<BenchRow>& rows, const char* system) {
    const auto is_it = [system](const BenchRow& row) { return row.system == system; };
    const auto found = std::ranges::find_if(rows, is_it);
    if (found == rows.end()) return;
    const BenchRow& base = *found;
    for (BenchRow& row : rows) {
      if (!is_it(row)) row.compare(system, base);
    }
  }

  Status guards() {
    for (const Shape shape : {Shape::download, Shape::upload}) {
      for (const std::uint64_t size : options_.sizes) {
        if (Status done = guards_cell(shape, size); !done.ok()) return done;
      }
    }
    return {};
  }

  Status guards_cell(Shape shape, std::uint64_t size) {
    const bool spin = options_.spins[0];
    std::vector<Contender> contenders{pawl(settings(Shape::echo, kCallBytes, 1, spin))};
    contenders[0].settings.guard = Guard::verify;  // it lends nothing
    for (const Guard guard : options_.guards) {
      SampleSettings cell = settings(shape, size, 1, spin);
      cell.guard = guard;
      cell.inline_off = true;
      Contender contender = pawl(cell);
      contender.may_be_refused = true;  // by the fabric, which says why
      contenders.push_back(std::move(contender));
    }
    Result<std::vector<BenchRow>> rows = run_pairs(std::move(contenders), options_.pairs);
    if (!rows.ok()) return rows.status();
    const BenchRow call = rows->front();
    const auto verify = std::ranges::find_if(*rows, [](const BenchRow& row) {
      return row.bulk() && row.settings.guard == Guard::verify;
    });
    for (BenchRow& row : *rows) {
      if (!row.bulk()) continue;
      row.compare("call", call);
      if (verify != rows->end()) row.compare("verify", *verify);
    }
    show(*std::move(rows));
    return {};
  }

  Status connections() {
    SampleSettings cell = settings(Shape::echo, options_.sizes[0], 1, options_.spins[0]);
    cell.look_at_idle = true;
    std::vector<Contender> contenders{pawl(cell)};
    for (const std::uint32_t idle : options_.connections) {
      cell.idle = idle;
      contenders.push_back(pawl(cell));
    }
    Result<std::vector<BenchRow>> rows = run_pairs(std::move(contenders), options_.pairs);
    if (!rows.ok()) return rows.status();
    const BenchRow none = rows->front();
    for (std::size_t i = 1; i < rows->size(); ++i) (*rows)[i].compare("none", none);
    show(*std::move(rows));
    return {};
  }

  Status storm() {
    for (const Shape shape : options_.directions) {
      for (const std::uint64_t size : options_.sizes) {
        if (Status done = storm_cell(shape, size); !done.ok()) return done;
      }
    }
    return {};
  }

  Status storm_cell(Shape shape, std::uint64_t size) {
    SampleSettings cell = settings(shape, size, options_.outstanding[0], options_.spins[0]);
    cell.inline_off = true;
    std::vector<Contender> contenders;
    for (const Guard guard : options_.guards) {
      for (const std::uint32_t held : options_.helds) {
        cell.guard = guard;
        cell.held_percent = held;
        Contender contender = pawl(cell);
        // By the fabric, which says why. There is none that cannot do these.
        contender.may_be_refused =
            guard != Guard::none && guard != Guard::disconnect && guard != Guard::verify;
        contenders.push_back(std::move(contender));
      }
    }
    Result<std::vector<BenchRow>> rows = run_pairs(std::move(contenders), options_.pairs);
    if (!rows.ok()) return rows.status();
    show(*std::move(rows));
    return {};
  }

  const BenchOptions& options_;
  const BenchMachine& machine_;
  std::vector<BenchRow> rows_;
};

void complain(const std::string& sentence) { fmt::print(stderr, "pawl bench: {}\n", sentence); }

void say_what_runs(const BenchOptions& options, const BenchMachine& machine) {
  fmt::print("pawl {}, fabric {}, {}; {} cores of {}.\n", kVersion, options.places.text,
             machine.pinning(), machine.cpus(), machine.model());
  fmt::print(
      "Medians of {} samples, taken in turn with those of the systems beside it, (least-most). A "
      "sample is {} between two processes of its own.\n",
      options.pairs,
      options.calls > 0 ? fmt::format("{} calls", options.calls)
                        : fmt::format("{} s", options.seconds));
  fmt::print("\n");
  std::fflush(stdout);
}

/// What the rows of a storm are to show.
void say_what_was_shown(const std::vector<BenchRow>& rows) {
  fmt::print("\n");
  for (const StormTarget& target : storm_targets(rows)) fmt::print("{}\n", sentence_of(target));
  for (const std::string& sentence : proved_nothing(rows)) fmt::print("{}\n", sentence);
  std::fflush(stdout);
}

std::string json_of(const BenchOptions& options, const BenchMachine& machine,
                    const std::vector<BenchRow>& rows, const Status& status) {
  JsonObject about;
  about.add("cpus", std::uint64_t{machine.cpus()}).add("model", machine.model());
  about.add("kernel", machine.kernel()).add("pinning", machine.pinning());
  about.add("busy_percent_before", machine.busy_percent());
  about.add("others_percent", machine.others_percent()).add("busy", machine.busy());
  std::vector<std::string> list;
  list.reserve(rows.size());
  for (const BenchRow& row : rows) list.push_back(json_of(row));
  JsonObject all;
  all.add("bench", name_of(options.kind)).add("version", kVersion);
  all.add("fabric", options.places.text).add_object("machine", about);
  all.add("pairs", std::uint64_t{options.pairs}).add("seconds", options.seconds);
  all.add("error", status.ok() ? std::string() : std::string(status.what()));
  all.add_list("rows", list);
  if (options.kind == BenchKind::storm) {
    std::vector<std::string> targets;
    for (const StormTarget& target : storm_targets(rows)) targets.push_back(json_of(target));
    all.add_list("targets", targets);
  }
  return all.text() + "\n";
}

}  // namespace

const char* name_of(BenchKind kind) {
  switch (kind) {
    case BenchKind::echo:
      return "echo";
    case BenchKind::bulk:
      return "bulk";
    case BenchKind::guards:
      return "guards";
    case BenchKind::conns:
      return "conns";
    case BenchKind::storm:
      return "storm";
  }
  return "";
}

int run_bench(const BenchOptions& options) {
  Result<JsonFile> json = JsonFile::open(options.json);
  if (!json.ok()) {
    complain(std::string(json.status().what()));
    return kFailed;
  }
  const BenchMachine machine = BenchMachine::look(kLook);
  say_what_runs(options, machine);
  if (machine.busy()) {
    complain(fmt::format("this machine is busy ({:.0f} % of all cores): figures will not be good",
                         machine.busy_percent()));
  }
  Bench bench(options, machine);
  Status status = bench.run();
  std::uint64_t wrong = 0;
  for (const BenchRow& row : bench.rows()) wrong += row.shows_wrong_bytes() ? 0 : row.wrong_bytes();
  if (status.ok() && options.kind == BenchKind::storm) say_what_was_shown(bench.rows());
  if (status.ok() && wrong > 0) {
    status = Status::with_detail(Code::internal, fmt::format("{} bytes arrived wrong", wrong));
  }
  if (status.ok() && machine.busy()) {
    complain(
        fmt::format("other programs used {:.0f} % of all cores meanwhile: the figures are not "
                    "good, and are marked so in the JSON file",
                    machine.others_percent()));
  }
  if (!status.ok()) complain(std::string(status.what()));
  const Status written = json->write(json_of(options, machine, bench.rows(), status));
  if (!written.ok()) complain(std::string(written.what()));
  return status.ok() && written.ok() ? kDone : kFailed;
}

}  // namespace pawl::tools
