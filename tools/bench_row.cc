// SPDX-License-Identifier: Apache-2.0
#include "bench_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "json.h"

namespace pawl::tools {

namespace {

double us(Duration time) { return static_cast<double>(time.count()) / 1000; }
double ns(Duration time) { return static_cast<double>(time.count()); }

double per(double part, std::uint64_t of) { return of == 0 ? 0 : part / static_cast<double>(of); }

Spread ratio_of(const BenchRow& row, const BenchRow& other, Figure figure) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(row.samples.size(), other.samples.size()); ++i) {
    const double base = figure_of(other.samples[i], figure);
    if (base > 0) ratios.push_back(figure_of(row.samples[i], figure) / base);
  }
  return Spread::of(std::move(ratios));
}

void add_spread(JsonObject& object, const std::string& key, const Spread& spread) {
  object.add(key, spread.median).add(key + "_min", spread.min).add(key + "_max", spread.max);
}

double figure_of(const IdleResult& idle, Figure figure) {
  const auto percent = [&](Duration cpu) {
    return idle.elapsed <= Duration{0} ? 0 : ns(cpu) / ns(idle.elapsed) * 100;
  };
  const double seconds = std::chrono::duration<double>(idle.connecting).count();
  switch (figure) {
    case Figure::connects_per_s:
      return seconds <= 0 ? 0 : static_cast<double>(idle.connections) / seconds;
    case Figure::server_bytes_per_connection:
      return per(static_cast<double>(idle.server_bytes), idle.connections);
    case Figure::client_bytes_per_connection:
      return per(static_cast<double>(idle.client_bytes), idle.connections);
    case Figure::server_files_per_connection:
      return per(static_cast<double>(idle.server_files), idle.connections);
    case Figure::server_idle_cpu_percent:
      return percent(idle.server_cpu);
    case Figure::client_idle_cpu_percent:
      return percent(idle.client_cpu);
    default:
      return 0;
  }
}

void add_idle(JsonObject& object, const BenchRow& row) {
  object.add("connections", std::uint64_t{row.settings.idle});
  for (const Figure figure : {Figure::server_idle_cpu_percent, Figure::client_idle_cpu_percent}) {
    add_spread(object, name_of(figure), row.spread(figure));
  }
  if (row.settings.idle == 0 || row.samples.empty()) return;
  object.add("receive_bytes_per_connection", row.samples[0].idle.receive_bytes);
  for (const Figure figure :
       {Figure::connects_per_s, Figure::server_bytes_per_connection,
        Figure::client_bytes_per_connection, Figure::server_files_per_connection}) {
    add_spread(object, name_of(figure), row.spread(figure));
  }
}

double figure_of(const SampleResult& sample, const StormResult& storm, Figure figure) {
  switch (figure) {
    case Figure::goodput_ratio:
      return per(static_cast<double>(storm.good_bytes), storm.offered_bytes);
    case Figure::calm_p50_us:
      return us(storm.calm.p50());
    case Figure::calm_p99_us:
      return us(storm.calm.p99());
    case Figure::p99_to_calm:
      return storm.calm.count() == 0 ? 0 : ns(sample.times.p99()) / ns(storm.calm.p99());
    case Figure::deadline_us:
      return us(storm.deadline);
    case Figure::offered_calls_per_s:
      return storm.calls_per_s;
    default:
      return 0;
  }
}

/// A call that does not succeed ends the run, but in a storm.
void add_losses(JsonObject& object, const BenchRow& row) {
  object.add("timed_out", row.sum(&StormResult::timed_out));
  object.add("stale_refused", row.sum(&SampleCounts::stale));
  object.add("connections_lost", row.sum(&SampleCounts::connections_lost));
  object.add("queue_pairs_lost", row.sum(&SampleCounts::queue_pairs_lost));
}

void add_storm(JsonObject& object, const BenchRow& row) {
  for (const Figure figure :
       {Figure::goodput_ratio, Figure::p50_us, Figure::p99_us, Figure::p999_us, Figure::calm_p50_us,
        Figure::calm_p99_us, Figure::p99_to_calm, Figure::deadline_us,
        Figure::offered_calls_per_s}) {
    add_spread(object, name_of(figure), row.spread(figure));
  }
  object.add("held_calls", row.sum(&StormResult::held));
  object.add("late_reads", row.sum(&StormResult::late_reads));
  object.add("failed", row.sum(&StormResult::failed));
  object.add("calm_failed", row.sum(&StormResult::calm_failed));
  add_losses(object, row);
}

void add_counts(JsonObject& object, const BenchRow& row) {
  add_losses(object, row);
  object.add("messages_per_call", row.messages_per_call());
  object.add("round_trips_per_call", row.round_trips_per_call());
  object.add("work_requests_per_call", row.work_requests_per_call());
}

void add_figures(JsonObject& object, const BenchRow& row) {
  for (const Figure figure :
       {Figure::p50_us, Figure::p99_us, Figure::p999_us, Figure::calls_per_s,
        Figure::goodput_bytes_per_s, Figure::client_cpu_ns_per_call, Figure::server_cpu_ns_per_call,
        Figure::cpu_ns_per_call, Figure::cpu_ns_per_byte}) {
    const bool of_calls =
        figure != Figure::goodput_bytes_per_s && figure != Figure::cpu_ns_per_byte;
    if (of_calls && row.calls() == 0) continue;  // a stream, without calls
    add_spread(object, name_of(figure), row.spread(figure));
  }
  for (const BenchRow::Ratios& ratios : row.ratios) {
    if (row.calls() > 0) add_spread(object, "p50_to_" + ratios.to, ratios.p50);
    if (row.calls() > 0) add_spread(object, "calls_to_" + ratios.to, ratios.calls);
    add_spread(object, "goodput_to_" + ratios.to, ratios.goodput);
    add_spread(object, "cpu_to_" + ratios.to, ratios.cpu);
    if (row.bulk() && ratios.to == "raw") object.add("goodput_ratio", ratios.goodput.median);
  }
}

}  // namespace

Spread Spread::of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

double figure_of(const SampleResult& sample, Figure figure) {
  const double seconds = std::chrono::duration<double>(sample.elapsed).count();
  const Duration cpu = sample.client_cpu + sample.server_cpu;
  switch (figure) {
    case Figure::p50_us:
      return us(sample.times.p50());
    case Figure::p99_us:
      return us(sample.times.p99());
    case Figure::p999_us:
      return us(sample.times.p999());
    case Figure::calls_per_s:
      return seconds <= 0 ? 0 : static_cast<double>(sample.calls) / seconds;
    case Figure::goodput_bytes_per_s:
      return seconds <= 0 ? 0 : static_cast<double>(sample.bytes) / seconds;
    case Figure::client_cpu_ns_per_call:
      return per(ns(sample.client_cpu), sample.calls);
    case Figure::server_cpu_ns_per_call:
      return per(ns(sample.server_cpu), sample.calls);
    case Figure::cpu_ns_per_call:
      return per(ns(cpu), sample.calls);
    case Figure::cpu_ns_per_byte:
      return per(ns(cpu), sample.bytes);
    default:
      return figure < Figure::goodput_ratio ? figure_of(sample.idle, figure)
                                            : figure_of(sample, sample.storm, figure);
  }
}

const char* name_of(Figure figure) {
  constexpr const char* kNames[] = {"p50_us",
                                    "p99_us",
                                    "p999_us",
                                    "calls_per_s",
                                    "goodput_bytes_per_s",
                                    "client_cpu_ns_per_call",
                                    "server_cpu_ns_per_call",
                                    "cpu_ns_per_call",
                                    "cpu_ns_per_byte",
                                    "connects_per_s",
                                    "server_bytes_per_connection",
                                    "client_bytes_per_connection",
                                    "server_files_per_connection",
                                    "server_idle_cpu_percent",
                                    "client_idle_cpu_percent",
                                    "goodput_ratio",
                                    "calm_p50_us",
                                    "calm_p99_us",
                                    "p99_to_calm",
                                    "deadline_us",
                                    "offered_calls_per_s"};
  return kNames[static_cast<std::size_t>(figure)];
}

Spread BenchRow::spread(Figure figure) const {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const SampleResult& sample : samples) values.push_back(figure_of(sample, figure));
  return Spread::of(std::move(values));
}

std::uint64_t BenchRow::sum(std::uint64_t SampleCounts::*count) const {
  std::uint64_t sum = 0;
  for (const SampleResult& sample : samples) sum += sample.counts.*count;
  return sum;
}

std::uint64_t BenchRow::sum(std::uint64_t StormResult::*count) const {
  std::uint64_t sum = 0;
  for (const SampleResult& sample : samples) sum += sample.storm.*count;
  return sum;
}

std::uint64_t BenchRow::calls() const {
  std::uint64_t calls = 0;
  for (const SampleResult& sample : samples) calls += sample.calls;
  return calls;
}

std::uint64_t BenchRow::wrong_bytes() const {
  std::uint64_t wrong = 0;
  for (const SampleResult& sample : samples) wrong += sample.wrong_bytes;
  return wrong;
}

double BenchRow::messages_per_call() const {
  return per(static_cast<double>(sum(&SampleCounts::messages)), calls());
}

double BenchRow::work_requests_per_call() const {
  const std::uint64_t requests = sum(&SampleCounts::messages) + sum(&SampleCounts::reads) +
                                 sum(&SampleCounts::binds) + sum(&SampleCounts::invalidates);
  return per(static_cast<double>(requests), calls());
}

double BenchRow::round_trips_per_call() const {
  const std::uint64_t trips =
      calls() + sum(&SampleCounts::transfers) + sum(&SampleCounts::confirms);
  return per(static_cast<double>(trips), calls());
}

void BenchRow::compare(const std::string& to, const BenchRow& other) {
  if (samples.empty() || other.samples.empty() || ratios_to(to) != nullptr) return;
  const Figure cpu = bulk() ? Figure::cpu_ns_per_byte : Figure::cpu_ns_per_call;
  ratios.push_back(
      {to, ratio_of(*this, other, Figure::p50_us), ratio_of(*this, other, Figure::calls_per_s),
       ratio_of(*this, other, Figure::goodput_bytes_per_s), ratio_of(*this, other, cpu)});
}

const BenchRow::Ratios* BenchRow::ratios_to(const std::string& to) const {
  const auto found =
      std::ranges::find_if(ratios, [&](const Ratios& each) { return each.to == to; });
  return found == ratios.end() ? nullptr : &*found;
}

const char* direction_of(Shape shape) {
  switch (shape) {
    case Shape::echo:
      return "call";
    case Shape::download:
      return "download";
    case Shape::upload:
      return "upload";
  }
  return "";
}

std::string json_of(const BenchRow& row) {
  const SampleSettings& settings = row.settings;
  JsonObject object;
  object.add("system", row.system).add("direction", direction_of(settings.shape));
  object.add("mode", settings.spin ? "spin" : "block").add("size", settings.size);
  object.add("outstanding", settings.outstanding);
  if (row.system == "pawl") object.add("guard", guard_name(settings.guard));
  if (row.storm()) object.add("held_percent", settings.held_percent);
  if (!row.missing.empty()) return object.add("missing", row.missing).text();
  if (row.system == "raw") object.add("socket_buffer_bytes", settings.socket_buffer_bytes);
  object.add("pinned", settings.server_core >= 0);
  object.add("samples", std::uint64_t{row.samples.size()});
  object.add("calls", row.calls()).add("wrong_bytes", row.wrong_bytes());
  if (row.storm()) {
    add_storm(object, row);
    return object.text();
  }
  add_figures(object, row);
  if (row.system == "pawl") add_counts(object, row);
  if (settings.look_at_idle) add_idle(object, row);
  return object.text();
}

}  // namespace pawl::tools
