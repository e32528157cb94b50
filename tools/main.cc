// SPDX-License-Identifier: Apache-2.0
// The pawl command: the command line, and nothing else.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "child.h"
#include "demo.h"
#include "demo_node.h"
#include "exit_code.h"
#include "info.h"
#include "pawl/version.h"
#include "rpc/system_fabric.h"

namespace pawl::tools {

namespace {

constexpr double kSecondsMax = 86400;
constexpr double kSecondsPerGuardMin = 0.5;

struct DemoArguments {
  DemoOptions options;
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
  demo->add_option("--seconds", options.seconds, "How long to run, all guards together")
      ->check(CLI::Range(kSecondsPerGuardMin, kSecondsMax))
      ->capture_default_str();
  demo->add_option("--dir", options.dir, "Your own files instead of a seeded corpus of 200 MB")
      ->check(CLI::ExistingDirectory);
  demo->add_option("--fabric", options.fabric, "The network: tcp")->capture_default_str();
  demo->add_option("--guards", arguments.guards, "One row each: none, disconnect, verify")
      ->capture_default_str();
  demo->add_option("--json", options.json, "Also write the rows to this file");
  demo->add_option("--seed", options.seed, "Of the corpus and of what is held")
      ->capture_default_str();
  demo->add_option(
          "--deadline-ms", arguments.deadline_ms,
          "Of small calls; large ones have more. By default a multiple of what they take here")
      ->check(CLI::Range(1u, 10000u));
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
    if (guard != Guard::none && guard != Guard::disconnect && guard != Guard::verify) {
      return wrong_usage("--guards: there is no guard \"" + name +
                         "\" on this fabric; none, disconnect, verify");
    }
    if (std::ranges::count(options.guards, *guard) > 0) {
      return wrong_usage("--guards: " + name + " is named twice");
    }
    options.guards.push_back(*guard);
  }
  if (options.seconds < kSecondsPerGuardMin * static_cast<double>(options.guards.size())) {
    return wrong_usage("--seconds: each guard needs at least half a second");
  }
  if (const Status known = rpc::make_system_source(options.fabric).status(); !known.ok()) {
    return wrong_usage("--fabric: " + std::string(known.what()));
  }
  if (options.fabric == "auto") options.fabric = "tcp";
  options.deadline = std::chrono::milliseconds(arguments.deadline_ms);
  return run_demo(options);
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  }
  return demo_command->parsed() ? demo(demo_arguments) : run_info(json);
}

}  // namespace

}  // namespace pawl::tools

int main(int argc, char** argv) { return pawl::tools::run(argc, argv); }
