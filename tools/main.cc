// SPDX-License-Identifier: Apache-2.0
// The pawl command: the command line, and nothing else.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "bench_board.h"
#include "child.h"
#include "demo.h"
#include "demo_node.h"
#include "doctor.h"
#include "exit_code.h"
#include "info.h"
#include "pawl/version.h"

namespace pawl::tools {

namespace {

constexpr double kSecondsMax = 86400;
constexpr double kSecondsPerGuardMin = 0.5;
constexpr double kSampleSecondsMin = 0.01;
constexpr std::uint64_t kMessageBytesMax = std::uint64_t{512} << 10;
constexpr std::uint32_t kOutstandingMax = 1024;
constexpr std::uint32_t kIdleConnectionsMax = 16000;
constexpr std::uint64_t kBlockBytesMax = std::uint64_t{64} << 20;

constexpr const char* kAboutFiles =
    "--dir takes the files in the folder and in its sub-folders, in the order of their paths, and\n"
    "never writes there. Links to files count as files, links to folders are not followed. Empty\n"
    "files and files or folders that cannot be read are left out; of a file above 64 MiB the "
    "first\n"
    "64 MiB are used, and of the folder the first 1 GiB and 65536 files. What is left out is "
    "said.\n"
    "A wrong byte can be told from a right one only where a buffer changes hands between files\n"
    "that differ: at least two must be of similar size (up to 4 KiB, 8 KiB, 16 KiB, ...). Large\n"
    "files need more --seconds than small ones.\n"
    "\n"
    "On a terminal of 60 columns and more the table is live.\n"
    "\n"
    "Ends with 0 if the run shows what it is to show; with 1 if `verify` accepted a wrong byte, "
    "or\n"
    "if the run proved nothing, and says what to do; with 64 after wrong usage.";

struct DemoArguments {
  DemoOptions options;
  std::string fabric = "tcp";
  std::string guards = "none,disconnect,verify";
  std::uint32_t deadline_ms = 0;
  // Of the processes that the command starts itself.
  std::string child;
  int parent = 0;
  ChildFiles files;
};

CLI::App* add_demo(CLI::App& app, DemoArguments& arguments) {
  DemoOptions& options = arguments.options;
  CLI::App* demo = app.add_subcommand(
      "demo", "Stores and fetches files while READs come late, without a guard and with one");
  demo->add_option("--seconds", options.seconds,
                   "How long to run, all guards together; half a second for each at least")
      ->check(CLI::Range(kSecondsPerGuardMin, kSecondsMax))
      ->capture_default_str();
  demo->add_option("--dir", options.dir,
                   "Your own files instead of a seeded corpus of 200 MB, see below")
      ->check(CLI::ExistingDirectory);
  demo->add_option("--fabric", arguments.fabric,
                   "The network: tcp, or verbs (RDMA; two devices if there are two; late READs are "
                   "counted by registration there, not by buffer)")
      ->capture_default_str();
  demo->add_option("--guards", arguments.guards, "One row each: none, disconnect, verify")
      ->capture_default_str();
  demo->add_option("--json", options.json,
                   "Also write the rows to this file; if the run fails, why");
  demo->add_option("--seed", options.seed, "Of the corpus and of what is held")
      ->check([](const std::string& text) {
        return std::string(text.starts_with('-') ? "it must be 0 or more" : "");
      })
      ->capture_default_str();
  demo->add_option(
          "--deadline-ms", arguments.deadline_ms,
          "Of small calls; large ones have more. By default a multiple of what they take here")
      ->check(CLI::Range(1u, 10000u));
  demo->footer(kAboutFiles);
  demo->add_option("--child", arguments.child)->group("");
  demo->add_option("--parent", arguments.parent)->group("");
  demo->add_option("--board-fd", arguments.files.board)->group("");
  demo->add_option("--corpus-fd", arguments.files.corpus)->group("");
  demo->add_option("--reuse-fd", arguments.files.reuse)->group("");
  return demo;
}

int wrong_usage(const std::string& sentence) {
  fmt::print(stderr, "pawl: {}\n", sentence);
  return kWrongUsage;
}

int demo(DemoArguments& arguments) {
  if (!arguments.child.empty()) {
    end_with_parent(arguments.parent);
    return arguments.child == "server" ? run_server(arguments.files) : run_client(arguments.files);
  }
  DemoOptions& options = arguments.options;
  options.guards.clear();
  for (const std::string& name : CLI::detail::split(arguments.guards, ',')) {
    const std::optional<Guard> guard = guard_from_name(name);
    if (!guard) {
      return wrong_usage("--guards: there is no guard \"" + name + "\"; none, disconnect, verify");
    }
    if (guard != Guard::none && guard != Guard::disconnect && guard != Guard::verify) {
      return wrong_usage("--guards: the demo has no row for \"" + name +
                         "\" yet; none, disconnect, verify");
    }
    if (std::ranges::count(options.guards, *guard) > 0) {
      return wrong_usage("--guards: " + name + " is named twice");
    }
    options.guards.push_back(*guard);
  }
  if (options.seconds < kSecondsPerGuardMin * static_cast<double>(options.guards.size())) {
    return wrong_usage(
        fmt::format("--seconds: each guard needs half a second at least: {} for these",
                    kSecondsPerGuardMin * static_cast<double>(options.guards.size())));
  }
  Result<DemoPlaces> places = choose_places(arguments.fabric);
  if (!places.ok()) return wrong_usage("--fabric: " + std::string(places.status().what()));
  options.places = *std::move(places);
  options.deadline = std::chrono::milliseconds(arguments.deadline_ms);
  return run_demo(options);
}

constexpr const char* kAboutBench =
    "Server and client are two processes, each pinned to a core where there are two. Each row is "
    "the\n"
    "median of --pairs samples, with the least and the most; a sample is a closed loop of "
    "--seconds,\n"
    "after a fifth of that to warm up. The samples of the systems beside each other are taken in\n"
    "turn, and ratios are of samples of the same turn. `raw` is the same bytes over plain "
    "sockets;\n"
    "spin: both ends never sleep; block: they sleep whenever there is nothing to do. CPU times "
    "are\n"
    "of both processes with all their threads. What arrives is compared with what was sent.\n"
    "On a machine with other work to do the figures are not good: it says so.\n"
    "\n"
    "Ends with 0 if all was measured; with 1 if something failed, or a byte was wrong; with 64 "
    "after\n"
    "wrong usage.";

constexpr const char* kAboutStorm =
    "Each sample is a server and a client of its own, each pinned to a core where there are two. "
    "It\n"
    "has three parts of --seconds (or --calls): a closed loop of --outstanding calls, which gives "
    "the\n"
    "capacity; an open loop of 60 % of it, the calm; the same load while the READs of --held "
    "percent\n"
    "of the calls are held inside the fabric, with a deadline of 10 times the calm p50. Latency "
    "counts\n"
    "from when a call was to begin. goodput: bytes that arrived right in time, of all that were "
    "offered\n"
    "to calls whose READs were not held; p99 is of these calls too. Every byte is compared. "
    "Guards:\n"
    "none and disconnect are what others do; one that the fabric cannot do is a row that says "
    "why.\n"
    "At the end it says which targets were met: verify at least 0.95 of the goodput and at most "
    "1.5\n"
    "times the calm p99, window at least 0.8 of the goodput at 5 %, both without a lost "
    "connection.\n"
    "On a machine with other work to do the figures are not good: it says so.\n"
    "\n"
    "Ends with 0 if all was measured, also where a target was missed; with 1 if something failed, "
    "or a\n"
    "guard accepted a wrong byte; with 64 after wrong usage.";

struct BenchArguments {
  BenchOptions options;
  std::string fabric = "tcp";
  std::string sizes;
  std::string outstanding = "1";
  std::string connections = "10000";
  std::string modes;
  std::string guards = "verify";
  std::string directions = "download";
  std::string helds = "1";
  std::string against;
  // Of the processes that the command starts itself.
  std::string child;
  int parent = 0;
  int board = -1;
};

/// One bench, with the options that all have.
CLI::App* add_bench(CLI::App& bench, BenchArguments& arguments, const char* name,
                    const char* what) {
  CLI::App* app = bench.add_subcommand(name, what);
  BenchOptions& options = arguments.options;
  app->add_option("--size", arguments.sizes, "Bytes: one or more of 64, 4K, 1M, ...")
      ->capture_default_str();
  app->add_option("--pairs", options.pairs, "Samples of each row")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app->add_option("--seconds", options.seconds, "Of each sample")
      ->check(CLI::Range(kSampleSecondsMin, kSecondsMax))
      ->capture_default_str();
  app->add_option("--calls", options.calls, "Of each sample, instead of --seconds")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app->add_option("--fabric", arguments.fabric, "The network of Pawl: tcp, or verbs")
      ->capture_default_str();
  app->add_option("--json", options.json, "Also write the rows to this file");
  app->footer(kAboutBench);
  return app;
}

void add_storm(CLI::App& bench, BenchArguments& storm) {
  CLI::App* app = add_bench(bench, storm, "storm",
                            "A load of blocks under each guard, while READs of some calls come "
                            "after the calls are over");
  app->add_option("--held", storm.helds, "Percent of the calls whose READs are held; one row each")
      ->capture_default_str();
  app->add_option("--direction", storm.directions, "download, upload")->capture_default_str();
  app->add_option("--outstanding", storm.outstanding,
                  "Calls under way at the same time where the capacity is measured")
      ->capture_default_str();
  app->add_option("--modes", storm.modes, "spin or block")->capture_default_str();
  app->footer(kAboutStorm);
}

void add_benches(CLI::App& app, std::array<BenchArguments, 5>& arguments) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measures calls and transfers, beside plain sockets and other programs");
  bench->require_subcommand(1);
  bench->footer(kAboutBench);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    arguments[i].options.kind = static_cast<BenchKind>(i);
  }
  auto& [echo, bulk, guards, conns, storm] = arguments;
  echo.sizes = "64";
  echo.outstanding = "1,64";
  echo.modes = "spin,block";
  echo.against = "raw";
  bulk.sizes = "64K,1M,16M";
  bulk.outstanding = "8,1";
  bulk.modes = "block";
  bulk.against = "raw,iperf3";
  guards.sizes = "4K,64K,1M";
  guards.modes = "spin";
  guards.guards = "none,disconnect,verify,window,window_verify";
  conns.sizes = "64";
  conns.modes = "block";
  conns.options.pairs = 3;
  conns.options.seconds = 2;

  storm.sizes = "64K";
  storm.outstanding = "8";
  storm.modes = "spin";
  storm.guards = guards.guards;
  storm.directions = "download,upload";
  storm.helds = "1,5,20";
  storm.options.pairs = 5;

  const auto add = [](CLI::App* to, BenchArguments& of, const char* others) {
    to->add_option("--outstanding", of.outstanding, "Calls under way at the same time")
        ->capture_default_str();
    to->add_option("--modes", of.modes, "spin, block")->capture_default_str();
    to->add_option("--against", of.against, others)->capture_default_str();
  };
  add(add_bench(*bench, echo, "echo", "Small calls"), echo, "raw, grpc, or none");
  CLI::App* pulls = add_bench(*bench, bulk, "bulk", "Blocks that are pulled, in both directions");
  add(pulls, bulk, "raw, iperf3, or none");
  CLI::App* each = add_bench(*bench, guards, "guards",
                             "One block at a time under each guard, and what that costs. Blocks "
                             "are pulled whatever their size");
  each->add_option("--modes", guards.modes, "spin or block")->capture_default_str();
  add_bench(*bench, conns, "conns",
            "A small call beside connections that do nothing, and their cost")
      ->add_option("--connections", conns.connections, "How many of them; one or more numbers")
      ->capture_default_str();
  add_storm(*bench, storm);
  const std::pair<CLI::App*, BenchArguments*> with_guards[] = {
      {pulls, &bulk}, {each, &guards}, {bench->get_subcommand("storm"), &storm}};
  for (const auto& [of, its] : with_guards) {
    of->add_option("--guard", its->guards, "One row each")->capture_default_str();
  }
}

CLI::App* add_bench_child(CLI::App& app, BenchArguments& arguments) {
  CLI::App* child = app.get_subcommand("bench")->add_subcommand("child")->group("");
  child->add_option("role", arguments.child)->required();
  child->add_option("--parent", arguments.parent)->required();
  child->add_option("--board-fd", arguments.board)->required();
  return child;
}

int run_bench_child(const BenchArguments& arguments) {
  end_with_parent(arguments.parent);
  return arguments.child == "server" ? run_bench_server(arguments.board)
                                     : run_bench_client(arguments.board);
}

/// Puts what an option gives where it belongs, or says that it is wrong.
template <class T>
bool take(Result<T> value, const char* option, T& to) {
  if (!value.ok()) {
    wrong_usage(fmt::format("{}: {}", option, value.status().what()));
    return false;
  }
  to = *std::move(value);
  return true;
}

int bench(BenchArguments& arguments) {
  BenchOptions& options = arguments.options;
  const bool small = options.kind == BenchKind::echo || options.kind == BenchKind::conns;
  const std::uint64_t max = small ? kMessageBytesMax : kBlockBytesMax;
  if (!take(sizes_from(arguments.sizes, max), "--size", options.sizes) ||
      !take(counts_from(arguments.outstanding, kOutstandingMax), "--outstanding",
            options.outstanding) ||
      !take(counts_from(arguments.connections, kIdleConnectionsMax), "--connections",
            options.connections) ||
      !take(spins_from(arguments.modes), "--modes", options.spins) ||
      !take(guards_from(arguments.guards), "--guard", options.guards) ||
      !take(directions_from(arguments.directions), "--direction", options.directions) ||
      !take(helds_from(arguments.helds), "--held", options.helds) ||
      !take(against_from(arguments.against, options.kind), "--against", options.against) ||
      !take(choose_places(arguments.fabric), "--fabric", options.places)) {
    return kWrongUsage;
  }
  if (options.kind == BenchKind::guards && options.spins.size() > 1) {
    return wrong_usage("--modes: the guards are shown in one: spin or block");
  }
  if (options.kind == BenchKind::storm && options.spins.size() > 1) {
    return wrong_usage("--modes: a storm has one: spin or block");
  }
  if (options.kind == BenchKind::storm && options.outstanding.size() > 1) {
    return wrong_usage("--outstanding: a storm has one capacity: one number");
  }
  return run_bench(options);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Pawl: RPC for networks with RDMA, whose buffers can be reused the moment a request "
      "is over.",
      "pawl");
  app.set_version_flag("--version", std::string("pawl ") + kVersion);
  app.require_subcommand(1);
  DemoArguments demo_arguments;
  const CLI::App* demo_command = add_demo(app, demo_arguments);
  bool json = false;
  CLI::App* info_command =
      app.add_subcommand("info", "Version, fabrics of this build and limits of this machine");
  info_command->add_flag("--json", json, "As one JSON object");
  CLI::App* doctor_command = app.add_subcommand(
      "doctor", "What would keep Pawl from working, or working well, here, and what mends it");
  doctor_command->add_flag("--json", json, "As one JSON object");
  doctor_command->footer("Ends with 0 if nothing failed (warnings are fine), with 1 else.");
  std::array<BenchArguments, 5> benches;
  add_benches(app, benches);
  BenchArguments child_arguments;
  const CLI::App* bench_child = add_bench_child(app, child_arguments);
  const std::string first = argc > 1 ? argv[1] : "";
  const auto named = [&](const CLI::App* each) { return each->get_name() == first; };
  if (!first.empty() && first[0] != '-' && app.get_subcommands(named).empty()) {
    fmt::print(stderr, "pawl: there is no command \"{}\": see pawl --help\n", argv[1]);
    return kWrongUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  }
  if (doctor_command->parsed()) return run_doctor(json);
  if (bench_child->parsed()) return run_bench_child(child_arguments);
  for (BenchArguments& arguments : benches) {
    if (app.got_subcommand("bench") &&
        app.get_subcommand("bench")->got_subcommand(name_of(arguments.options.kind))) {
      return bench(arguments);
    }
  }
  return demo_command->parsed() ? demo(demo_arguments) : run_info(json);
}

}  // namespace

}  // namespace pawl::tools

int main(int argc, char** argv) { return pawl::tools::run(argc, argv); }
