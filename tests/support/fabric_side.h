// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "pawl/time.h"
#include "support/plain_memory.h"

namespace pawl::testing {

using fabric::Completion;
using fabric::EndpointId;
using fabric::Event;
using fabric::EventKind;
using fabric::Fabric;
using fabric::LocalSegment;
using fabric::Opcode;
using fabric::RemoteAddress;
using fabric::WorkRequest;

/// Memory that is registered with one fabric. Never moves.
class Area {
 public:
  Area(Fabric& fabric, MemoryKind& kind, std::size_t bytes, MemoryUse use);
  ~Area();
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t bytes) const {
    return {.address = memory_.data() + offset,
            .length = static_cast<std::uint32_t>(bytes),
            .memory = handle_};
  }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return memory_.data() + offset; }
  [[nodiscard]] MemoryHandle handle() const { return handle_; }
  [[nodiscard]] bool registered() const { return static_cast<bool>(handle_); }
  Status deregister();

  void write(std::size_t offset, std::string_view text);
  void fill(std::size_t offset, std::size_t bytes, char value);
  /// Bytes that depend on their place and on `seed`.
  void fill_pattern(std::size_t offset, std::size_t bytes, std::uint64_t seed);
  [[nodiscard]] std::string read(std::size_t offset, std::size_t bytes) const;

 private:
  Fabric& fabric_;
  MemoryKind& kind_;
  std::span<std::byte> memory_;
  MemoryHandle handle_;
};

std::string pattern(std::size_t bytes, std::uint64_t seed);

/// One fabric and a record of all that it returned. Checks while it runs what holds always: each
/// accepted request completes once, nothing comes after `closed`, nothing succeeds before
/// `connected`.
class Side {
 public:
  /// Ids of requests start at `first_id`.
  Side(Fabric& fabric, const Clock& clock, std::uint64_t first_id = 1);
  ~Side();

  [[nodiscard]] Fabric& fabric() { return fabric_; }
  Area& area(std::size_t bytes, MemoryUse use = MemoryUse::bulk, MemoryKind* kind = nullptr);

  /// Posts a chain under new ids and returns those accepted; `why` says why not all.
  std::vector<std::uint64_t> post(EndpointId endpoint, std::vector<WorkRequest> chain, Status& why);
  /// Posts one request that must be accepted.
  std::uint64_t post(EndpointId endpoint, const WorkRequest& work);
  std::uint64_t receive(EndpointId endpoint, const LocalSegment& segment);
  std::uint64_t send(EndpointId endpoint, const LocalSegment& segment);
  std::uint64_t read(EndpointId endpoint, const LocalSegment& to, RemoteAddress from);

  /// One turn of a poller; true if anything came. Polls `batch` completions at a time.
  bool turn(std::size_t batch = 16);

  [[nodiscard]] const Completion* completion(std::uint64_t id) const;
  [[nodiscard]] bool done(std::uint64_t id) const { return completion(id) != nullptr; }
  /// "success", "flushed", …, or "none".
  [[nodiscard]] std::string status(std::uint64_t id) const;
  [[nodiscard]] bool all_done(std::span<const std::uint64_t> ids) const;
  /// Accepted and not completed.
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }
  [[nodiscard]] std::size_t outstanding(EndpointId endpoint) const;

  /// The first event of this kind (of this endpoint, if given).
  [[nodiscard]] const Event* event(EventKind kind, EndpointId endpoint = {}) const;
  [[nodiscard]] std::size_t count(EventKind kind, EndpointId endpoint = {}) const;
  [[nodiscard]] std::vector<const Event*> events(EventKind kind) const;

  /// In the order in which they came.
  std::vector<Completion> completions;
  /// Called for each completion, as soon as poll returned it.
  std::function<void(const Completion&)> on_completion;
  /// Called for each event.
  std::function<void(const Event&)> on_event;

 private:
  struct Posted {
    EndpointId endpoint;
    Opcode op = Opcode::send;
  };
  void take(const Completion& completion);
  void take(Event event);

  Fabric& fabric_;
  const Clock& clock_;
  PlainMemory plain_;
  std::vector<std::unique_ptr<Area>> areas_;
  std::uint64_t next_id_;
  std::map<std::uint64_t, Posted> outstanding_;
  std::map<std::uint64_t, Completion> done_;
  std::vector<std::unique_ptr<Event>> events_;
  std::set<EndpointId> connected_;
  std::set<EndpointId> gone_;
};

}  // namespace pawl::testing
