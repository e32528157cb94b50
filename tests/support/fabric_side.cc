// SPDX-License-Identifier: Apache-2.0
#include "support/fabric_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

namespace pawl::testing {

Area::Area(Fabric& fabric, MemoryKind& kind, std::size_t bytes, MemoryUse use)
    : fabric_(fabric), kind_(kind), memory_(kind.allocate(bytes).value()) {
  Result<MemoryHandle> handle = fabric.register_memory(memory_, kind, use);
  if (handle.ok()) handle_ = *handle;
}

Area::~Area() {
  if (handle_) {
    const Status status = deregister();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  kind_.free(memory_);
}

Status Area::deregister() { return fabric_.deregister_memory(std::exchange(handle_, {})); }

void Area::write(std::size_t offset, std::string_view text) {
  kind_.copy_in(at(offset), std::as_bytes(std::span(text)));
}

void Area::fill(std::size_t offset, std::size_t bytes, char value) {
  write(offset, std::string(bytes, value));
}

void Area::fill_pattern(std::size_t offset, std::size_t bytes, std::uint64_t seed) {
  write(offset, pattern(bytes, seed));
}

std::string Area::read(std::size_t offset, std::size_t bytes) const {
  std::string text(bytes, '\0');
  kind_.copy_out(std::as_writable_bytes(std::span(text)), at(offset));
  return text;
}

std::string pattern(std::size_t bytes, std::uint64_t seed) {
  std::string text(bytes, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& c : text) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(state >> 56);
  }
  return text;
}

Side::Side(Fabric& fabric, const Clock& clock, std::uint64_t first_id)
    : fabric_(fabric), clock_(clock), next_id_(first_id) {}

Side::~Side() = default;

Area& Side::area(std::size_t bytes, MemoryUse use, MemoryKind* kind) {
  areas_.push_back(std::make_unique<Area>(fabric_, kind == nullptr ? plain_ : *kind, bytes, use));
  EXPECT_TRUE(kind != nullptr || areas_.back()->registered());
  return *areas_.back();
}

std::vector<std::uint64_t> Side::post(EndpointId endpoint, std::vector<WorkRequest> chain,
                                      Status& why) {
  for (WorkRequest& work : chain) work.id = next_id_++;
  const std::size_t accepted = fabric_.post(endpoint, chain, why);
  EXPECT_LE(accepted, chain.size());
  EXPECT_EQ(why.ok(), accepted == chain.size()) << why.to_string();
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < accepted; ++i) {
    ids.push_back(chain[i].id);
    outstanding_[chain[i].id] = {.endpoint = endpoint, .op = chain[i].op};
  }
  return ids;
}

std::uint64_t Side::post(EndpointId endpoint, const WorkRequest& work) {
  Status why;
  const std::vector<std::uint64_t> ids = post(endpoint, std::vector{work}, why);
  EXPECT_EQ(ids.size(), 1u) << why.to_string();
  return ids.empty() ? 0 : ids[0];
}

std::uint64_t Side::receive(EndpointId endpoint, const LocalSegment& segment) {
  return post(endpoint, {.op = Opcode::receive, .local = std::span(&segment, 1)});
}

std::uint64_t Side::send(EndpointId endpoint, const LocalSegment& segment) {
  return post(endpoint, {.op = Opcode::send, .local = std::span(&segment, 1)});
}

std::uint64_t Side::read(EndpointId endpoint, const LocalSegment& to, RemoteAddress from) {
  return post(endpoint, {.op = Opcode::read, .local = std::span(&to, 1), .remote = from});
}

bool Side::turn(std::size_t batch) {
  bool progress = false;
  std::array<Completion, 64> out;
  const std::size_t count =
      fabric_.poll(clock_.now(), std::span(out).first(std::min(batch, out.size())));
  for (std::size_t i = 0; i < count; ++i) take(out[i]);
  progress = count > 0;
  for (Event event; fabric_.poll_event(event); event = {}) {
    take(std::move(event));
    progress = true;
  }
  return progress;
}

void Side::take(const Completion& completion) {
  const auto posted = outstanding_.find(completion.id);
  if (posted == outstanding_.end()) {
    ADD_FAILURE() << "request " << completion.id << " completes but is not outstanding ("
                  << completion_status_name(completion.status) << ")";
    return;
  }
  EXPECT_EQ(posted->second.endpoint, completion.endpoint);
  EXPECT_EQ(posted->second.op, completion.op);
  EXPECT_FALSE(gone_.contains(completion.endpoint)) << "a completion after the last event";
  if (completion.status == fabric::CompletionStatus::success) {
    EXPECT_TRUE(connected_.contains(completion.endpoint)) << "success before `connected`";
  }
  outstanding_.erase(posted);
  done_[completion.id] = completion;
  completions.push_back(completion);
  if (on_completion) on_completion(completion);
}

void Side::take(Event event) {
  const EndpointId endpoint = event.endpoint;
  EXPECT_FALSE(endpoint && gone_.contains(endpoint)) << "an event after the last one";
  switch (event.kind) {
    case EventKind::connected:
      EXPECT_TRUE(connected_.insert(endpoint).second) << "`connected` twice";
      break;
    case EventKind::failed:
      EXPECT_TRUE(connected_.contains(endpoint)) << "`failed` before `connected`";
      EXPECT_EQ(count(EventKind::failed, endpoint), 0u) << "`failed` twice";
      break;
    case EventKind::connect_failed:
      EXPECT_FALSE(connected_.contains(endpoint));
      EXPECT_FALSE(event.status.ok());
      [[fallthrough]];
    case EventKind::closed:
      EXPECT_EQ(outstanding(endpoint), 0u) << "the last event before the last completion";
      gone_.insert(endpoint);
      break;
    case EventKind::connect_request:
    case EventKind::device:
      break;
  }
  events_.push_back(std::make_unique<Event>(std::move(event)));
  if (on_event) on_event(*events_.back());
}

const Completion* Side::completion(std::uint64_t id) const {
  const auto found = done_.find(id);
  return found == done_.end() ? nullptr : &found->second;
}

std::string Side::status(std::uint64_t id) const {
  const Completion* found = completion(id);
  return found == nullptr ? "none" : std::string(completion_status_name(found->status));
}

bool Side::all_done(std::span<const std::uint64_t> ids) const {
  return std::all_of(ids.begin(), ids.end(), [this](std::uint64_t id) { return done(id); });
}

std::size_t Side::outstanding(EndpointId endpoint) const {
  return static_cast<std::size_t>(
      std::count_if(outstanding_.begin(), outstanding_.end(),
                    [&](const auto& entry) { return entry.second.endpoint == endpoint; }));
}

const Event* Side::event(EventKind kind, EndpointId endpoint) const {
  for (const auto& event : events_) {
    if (event->kind == kind && (!endpoint || event->endpoint == endpoint)) return event.get();
  }
  return nullptr;
}

std::size_t Side::count(EventKind kind, EndpointId endpoint) const {
  return static_cast<std::size_t>(
      std::count_if(events_.begin(), events_.end(), [&](const auto& event) {
        return event->kind == kind && (!endpoint || event->endpoint == endpoint);
      }));
}

std::vector<const Event*> Side::events(EventKind kind) const {
  std::vector<const Event*> found;
  for (const auto& event : events_) {
    if (event->kind == kind) found.push_back(event.get());
  }
  return found;
}

}  // namespace pawl::testing
