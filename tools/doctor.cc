// SPDX-License-Identifier: Apache-2.0
#include "doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "exit_code.h"
#include "json.h"
#include "pawl/version.h"

namespace pawl::tools {

namespace {

constexpr const char* kGreen = "\033[32m";
constexpr const char* kYellow = "\033[33m";
constexpr const char* kRed = "\033[31m";
constexpr const char* kPlain = "\033[0m";

const char* name_of(Finding::Level level) {
  switch (level) {
    case Finding::Level::ok:
      return "ok";
    case Finding::Level::warning:
      return "warning";
    case Finding::Level::failure:
      return "FAILURE";
  }
  return "";
}

const char* colour_of(Finding::Level level) {
  switch (level) {
    case Finding::Level::ok:
      return kGreen;
    case Finding::Level::warning:
      return kYellow;
    case Finding::Level::failure:
      return kRed;
  }
  return "";
}

std::uint64_t count(const Findings& findings, Finding::Level level) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(findings, [&](const Finding& each) { return each.level == level; }));
}

std::string summary(const Findings& findings) {
  return fmt::format("{} ok, {} warnings, {} failures", count(findings, Finding::Level::ok),
                     count(findings, Finding::Level::warning),
                     count(findings, Finding::Level::failure));
}

}  // namespace

std::string text_of(const Findings& findings, bool colour) {
  std::string text;
  for (const Finding& each : findings) {
    text += fmt::format("{}{:<9}{}{:<12}{}\n", colour ? colour_of(each.level) : "",
                        name_of(each.level), colour ? kPlain : "", each.check, each.evidence);
    if (!each.mend.empty()) text += fmt::format("{:21}mend: {}\n", "", each.mend);
  }
  return text + summary(findings) + "\n";
}

std::string json_of(const Findings& findings) {
  std::vector<std::string> list;
  for (const Finding& each : findings) {
    const bool failed = each.level == Finding::Level::failure;
    list.push_back(JsonObject()
                       .add("check", each.check)
                       .add("level", failed ? "failure" : name_of(each.level))
                       .add("evidence", each.evidence)
                       .add("mend", each.mend)
                       .text());
  }
  JsonObject all;
  all.add("version", kVersion).add_list("findings", list);
  all.add("warnings", count(findings, Finding::Level::warning));
  all.add("failures", count(findings, Finding::Level::failure));
  return all.text();
}

int run_doctor(bool json) {
  const Machine machine = Machine::here();
  Findings findings = look_at(machine);
  findings.push_back(loop_back("tcp"));
  // What nodes would take here that leave their fabric at "auto".
  const char* const named = std::getenv("PAWL_FABRIC");
  const std::string wanted = named != nullptr ? named : "";
  if (!wanted.empty() && wanted != "auto" && wanted != "tcp") {
    findings.push_back(loop_back(wanted));
  } else if (!machine.ports.usable.empty()) {
    findings.push_back(loop_back("verbs"));
  }
  if (json) {
    fmt::print("{}\n", json_of(findings));
  } else {
    const bool colour = ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
    fmt::print("{}", text_of(findings, colour));
  }
  return count(findings, Finding::Level::failure) == 0 ? kDone : kFailed;
}

}  // namespace pawl::tools
