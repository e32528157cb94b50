// SPDX-License-Identifier: Apache-2.0
#include "fabric/sim/memory.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace pawl::fabric {
namespace {

// A key is {kind, index, 8 bits}: those of a window count its binds, those of a region are random.
constexpr std::uint64_t kWindowKeyBit = std::uint64_t{1} << 40;

bool inside(std::span<std::byte> outer, const std::byte* address, std::uint64_t length) {
  const std::less_equal<const std::byte*> before;
  return before(outer.data(), address) && before(address, outer.data() + outer.size()) &&
         length <= static_cast<std::uint64_t>(outer.data() + outer.size() - address);
}

}  // namespace

SimMemory::SimMemory(std::uint64_t seed, bool exact_keys)
    : exact_keys_(exact_keys),
      random_(seed),
      next_handle_(1 + random_.below(1u << 20) * 4096),
      next_key_index_(1 + random_.below(1u << 20) * 256) {}

Result<MemoryHandle> SimMemory::add(std::span<std::byte> memory, MemoryKind& kind, MemoryUse use) {
  if (memory.empty()) {
    return Status(Code::invalid_argument, "memory of no bytes cannot be registered");
  }
  const std::lock_guard lock(mutex_);
  const MemoryHandle handle{next_handle_++};
  registrations_[handle.value] = {.memory = memory, .kind = &kind, .use = use};
  return handle;
}

Status SimMemory::remove(MemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = registrations_.find(handle.value);
  if (found == registrations_.end()) {
    return Status(Code::not_found, "this memory is not registered here");
  }
  if (found->second.windows_bound != 0) {
    return Status(Code::failed_precondition,
                  "a window is bound to this memory: invalidate or free it before deregistering");
  }
  registrations_.erase(found);
  std::erase_if(keys_, [&](const auto& key) { return key.second.registration == handle.value; });
  std::erase_if(key_of_buffer_, [&](const auto& entry) { return !keys_.contains(entry.second); });
  return {};
}

Result<RemoteAddress> SimMemory::expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                                        std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  const auto found = registrations_.find(memory.value);
  if (found == registrations_.end()) {
    return Status(Code::not_found, "this memory is not registered here");
  }
  const Registration& registration = found->second;
  if (registration.use != MemoryUse::bulk && registration.use != MemoryUse::generation_words) {
    return Status(Code::permission_denied,
                  "this memory was registered without remote read; use a window");
  }
  if (length == 0 || !inside(registration.memory, base, length)) {
    return Status(Code::invalid_argument, "the buffer does not lie in its registration");
  }
  std::uint64_t offset = 0;
  if (!exact_keys_) {
    offset = static_cast<std::uint64_t>(base - registration.memory.data());
    base = registration.memory.data();
    length = registration.memory.size();
    group = {};
  }
  const auto old = key_of_buffer_.find({group.value, base});
  if (old != key_of_buffer_.end()) {
    Key& key = keys_.at(old->second);
    if (key.registration == memory.value) {
      key.length = std::max(key.length, length);
      return RemoteAddress{.key = old->second, .address = key.address + offset};
    }
    keys_.erase(old->second);
  }
  const std::uint64_t value = next_key_index_++ << 8 | random_.below(256);
  const std::uint64_t address = 4096 * (1 + random_.below(1u << 24));
  keys_[value] = {.group = group,
                  .registration = memory.value,
                  .base = base,
                  .length = length,
                  .address = address};
  key_of_buffer_[{group.value, base}] = value;
  return RemoteAddress{.key = value, .address = address + offset};
}

void SimMemory::close_group(PeerGroup group) {
  if (!exact_keys_) return;  // they belong to the registrations
  const std::lock_guard lock(mutex_);
  std::erase_if(keys_, [&](const auto& key) { return key.second.group == group; });
  std::erase_if(key_of_buffer_,
                [&](const auto& entry) { return entry.first.first == group.value; });
}

WindowId SimMemory::add_window() {
  const std::lock_guard lock(mutex_);
  const WindowId id{next_key_index_++};
  windows_[id.value] = {};
  return id;
}

void SimMemory::unbind(Window& window) {
  window.bound = false;
  const auto found = registrations_.find(window.target.memory.value);
  if (found != registrations_.end()) --found->second.windows_bound;
}

Status SimMemory::remove_window(WindowId window) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(window.value);
  if (found == windows_.end()) return Status(Code::not_found, "no such window");
  if (found->second.work_posted > 0) {
    return Status(Code::failed_precondition,
                  "a bind or invalidate that names this window may still be executed");
  }
  if (found->second.bound) unbind(found->second);
  windows_.erase(found);
  return {};
}

bool SimMemory::window_exists(WindowId window) const {
  const std::lock_guard lock(mutex_);
  return windows_.contains(window.value);
}

std::uint64_t SimMemory::window_key(WindowId id, std::uint8_t binds) const {
  return kWindowKeyBit | id.value << 8 | binds;
}

std::uint64_t SimMemory::next_window_key(WindowId window) const {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(window.value);
  if (found == windows_.end()) return 0;
  return window_key(window, static_cast<std::uint8_t>(found->second.binds + 1));
}

std::uint64_t SimMemory::take_window_key(WindowId window) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(window.value);
  return found == windows_.end() ? 0 : window_key(window, ++found->second.binds);
}

void SimMemory::window_work_posted(WindowId window) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(window.value);
  if (found != windows_.end()) ++found->second.work_posted;
}

void SimMemory::window_work_done(WindowId window) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(window.value);
  if (found != windows_.end()) --found->second.work_posted;
}

CompletionStatus SimMemory::bind(WindowId id, std::uint64_t key, EndpointId endpoint,
                                 const LocalSegment& target) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(id.value);
  if (found == windows_.end() || found->second.bound) return CompletionStatus::bind_error;
  const auto memory = registrations_.find(target.memory.value);
  if (memory == registrations_.end() || covering(target) == nullptr) {
    return CompletionStatus::local_error;
  }
  const MemoryUse use = memory->second.use;
  if (use != MemoryUse::bulk && use != MemoryUse::bulk_window_only) {
    return CompletionStatus::bind_error;
  }
  ++memory->second.windows_bound;
  Window& window = found->second;
  window.bound = true;
  window.key = key;
  window.endpoint = endpoint;
  window.target = target;
  return CompletionStatus::success;
}

CompletionStatus SimMemory::invalidate(WindowId id, EndpointId endpoint) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(id.value);
  if (found == windows_.end() || !found->second.bound || found->second.endpoint != endpoint) {
    return CompletionStatus::local_error;
  }
  unbind(found->second);
  return CompletionStatus::success;
}

const SimMemory::Registration* SimMemory::covering(const LocalSegment& segment) const {
  const auto found = registrations_.find(segment.memory.value);
  if (found == registrations_.end()) return nullptr;
  if (!inside(found->second.memory, segment.address, segment.length)) return nullptr;
  return &found->second;
}

bool SimMemory::covers(std::span<const LocalSegment> segments) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(segments.begin(), segments.end(),
                     [this](const LocalSegment& segment) { return covering(segment) != nullptr; });
}

bool SimMemory::gather(std::span<const LocalSegment> segments, std::span<std::byte> to) const {
  const std::lock_guard lock(mutex_);
  for (const LocalSegment& segment : segments) {
    const Registration* registration = covering(segment);
    if (registration == nullptr) return false;
    registration->kind->copy_out(to.first(segment.length), segment.address);
    to = to.subspan(segment.length);
  }
  return true;
}

bool SimMemory::scatter(std::span<const LocalSegment> segments, std::uint64_t offset,
                        std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  for (const LocalSegment& segment : segments) {
    if (from.empty()) break;
    if (offset >= segment.length) {
      offset -= segment.length;
      continue;
    }
    const Registration* registration = covering(segment);
    if (registration == nullptr) return false;
    const std::size_t bytes = std::min<std::size_t>(from.size(), segment.length - offset);
    registration->kind->copy_in(segment.address + offset, from.first(bytes));
    from = from.subspan(bytes);
    offset = 0;
  }
  return from.empty();
}

bool SimMemory::is_window_key(std::uint64_t key) { return (key & kWindowKeyBit) != 0; }

SimMemory::Place SimMemory::find(const Reader& reader, RemoteAddress from,
                                 std::uint64_t bytes) const {
  std::uint64_t registration = 0;
  std::byte* base = nullptr;
  std::uint64_t length = 0;
  std::uint64_t offset = from.address;
  if (is_window_key(from.key)) {
    const auto found = windows_.find((from.key & ~kWindowKeyBit) >> 8);
    if (found == windows_.end()) return {};
    const Window& window = found->second;
    if (!window.bound || window.key != from.key || window.endpoint != reader.endpoint) return {};
    registration = window.target.memory.value;
    base = window.target.address;
    length = window.target.length;
  } else {
    const auto found = keys_.find(from.key);
    if (found == keys_.end()) return {};
    if (exact_keys_ && found->second.group != reader.group) return {};
    const Key& key = found->second;
    if (from.address < key.address) return {};
    registration = key.registration;
    base = key.base;
    length = key.length;
    offset = from.address - key.address;
  }
  if (offset > length || bytes > length - offset) return {};
  const auto found = registrations_.find(registration);
  if (found == registrations_.end()) return {};
  return {.registration = &found->second, .address = base + offset};
}

bool SimMemory::readable(const Reader& reader, RemoteAddress from, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return find(reader, from, bytes).registration != nullptr;
}

bool SimMemory::read(const Reader& reader, RemoteAddress from, std::span<std::byte> to) const {
  const std::lock_guard lock(mutex_);
  const Place place = find(reader, from, to.size());
  if (place.registration == nullptr) return false;
  place.registration->kind->copy_out(to, place.address);
  return true;
}

SimMemory::Counts SimMemory::counts() const {
  const std::lock_guard lock(mutex_);
  return {.keys = keys_.size(), .windows = windows_.size(), .registrations = registrations_.size()};
}

}  // namespace pawl::fabric
