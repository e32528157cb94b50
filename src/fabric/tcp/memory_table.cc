// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp/memory_table.h"

#include <sys/random.h>

#include <cerrno>
#include <string>

#include "base/check.h"

namespace pawl::fabric::tcp {
namespace {

bool inside(std::span<const std::byte> memory, const std::byte* base, std::uint64_t length) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto wanted = reinterpret_cast<std::uintptr_t>(base);
  return wanted >= first && wanted - first <= memory.size() &&
         length <= memory.size() - (wanted - first);
}

}  // namespace

// --- registrations -------------------------------------------------------------------------

Result<MemoryHandle> MemoryTable::add(std::span<std::byte> memory, MemoryKind& kind,
                                      MemoryUse use) {
  if (memory.empty() || memory.data() == nullptr) {
    return Status(Code::invalid_argument, "register_memory: the memory is empty");
  }
  const std::lock_guard lock(mutex_);
  return MemoryHandle{registrations_.insert({.memory = memory, .kind = &kind, .use = use})};
}

Status MemoryTable::remove(MemoryHandle handle) {
  std::unique_lock lock(mutex_);
  Registration* const registration = registrations_.find(handle.value);
  if (registration == nullptr) {
    return Status(Code::not_found, "deregister_memory: no such registration");
  }
  while (registration->first_key != kNone) erase_key(registration->first_key);
  registrations_.erase(handle.value);
  wait_for_sampling(lock);
  return {};
}

bool MemoryTable::covers(const LocalSegment& segment, MemoryKind*& kind) const {
  const std::lock_guard lock(mutex_);
  const Registration* const registration =
      registration_of(segment.memory, segment.address, segment.length);
  if (registration == nullptr) return false;
  kind = registration->kind->cpu_readable() ? nullptr : registration->kind;
  return true;
}

const MemoryTable::Registration* MemoryTable::registration_of(MemoryHandle memory,
                                                              const std::byte* base,
                                                              std::uint64_t length) const {
  const Registration* const registration = registrations_.find(memory.value);
  if (registration == nullptr || !inside(registration->memory, base, length)) return nullptr;
  return registration;
}

// --- keys ----------------------------------------------------------------------------------

std::uint64_t MemoryTable::random_key() {
  for (;;) {
    if (random_left_ == 0) {
      const ssize_t n = getrandom(random_.data(), sizeof random_, 0);
      // Up to 256 bytes the call is never cut short, and fails only before the system has entropy
      // or where the call does not exist: keys that can be guessed are no way out.
      if (n < 0 && errno == EINTR) continue;
      PAWL_CHECK(n == static_cast<ssize_t>(sizeof random_), "the system gives no random numbers");
      random_left_ = random_.size();
    }
    const std::uint64_t key = random_[--random_left_];
    random_[random_left_] = 0;
    if (key != 0 && index_.find(key) == kNone) return key;
  }
}

void MemoryTable::insert_key(const Key& key) {
  std::uint32_t place = 0;
  if (free_keys_.empty()) {
    place = static_cast<std::uint32_t>(keys_.size());
    keys_.push_back(key);
    free_keys_.reserve(keys_.capacity());
  } else {
    place = free_keys_.back();
    free_keys_.pop_back();
    keys_[place] = key;
  }
  Registration* const registration = registrations_.find(key.memory.value);
  keys_[place].next = registration->first_key;
  if (registration->first_key != kNone) keys_[registration->first_key].previous = place;
  registration->first_key = place;
  index_.insert(key.key, place);
}

void MemoryTable::erase_key(std::uint32_t place) {
  Key& key = keys_[place];
  if (key.previous != kNone) {
    keys_[key.previous].next = key.next;
  } else if (Registration* const registration = registrations_.find(key.memory.value)) {
    registration->first_key = key.next;
  }
  if (key.next != kNone) keys_[key.next].previous = key.previous;
  index_.erase(key.key);
  if (!key.window) region_keys_.erase({key.group.value, key.base});
  key = Key{};
  free_keys_.push_back(place);
}

Result<RemoteAddress> MemoryTable::expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                                          std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  const Registration* const registration = registration_of(memory, base, length);
  if (registration == nullptr || length == 0) {
    return Status(Code::invalid_argument,
                  "expose: the buffer does not lie in the registration, or is empty");
  }
  if (registration->use != MemoryUse::bulk && registration->use != MemoryUse::generation_words) {
    return Status(Code::permission_denied,
                  "expose: the registration's use gives no remote read; register it as bulk");
  }
  const auto found = region_keys_.find({group.value, base});
  if (found != region_keys_.end()) {
    const std::uint32_t place = index_.find(found->second);
    Key& key = keys_[place];
    if (key.memory == memory) {
      if (key.length < length) key.length = length;
      return RemoteAddress{.key = key.key, .address = 0};
    }
    erase_key(place);  // the same address in another registration is another buffer
  }
  Key key;
  key.key = random_key();
  key.group = group;
  key.base = base;
  key.length = length;
  key.memory = memory;
  key.kind = registration->kind->cpu_readable() ? nullptr : registration->kind;
  insert_key(key);
  region_keys_.emplace(BufferName{group.value, base}, key.key);
  return RemoteAddress{.key = key.key, .address = 0};
}

void MemoryTable::close_group(PeerGroup group) {
  std::unique_lock lock(mutex_);
  auto at = region_keys_.lower_bound({group.value, nullptr});
  while (at != region_keys_.end() && at->first.first == group.value) {
    const std::uint64_t key = (at++)->second;
    erase_key(index_.find(key));
  }
  wait_for_sampling(lock);
}

// --- windows -------------------------------------------------------------------------------

WindowId MemoryTable::allocate_window() {
  const std::lock_guard lock(mutex_);
  Window window;
  window.next_key = random_key();
  return WindowId{windows_.insert(window)};
}

std::uint64_t MemoryTable::next_window_key(WindowId id) const {
  const std::lock_guard lock(mutex_);
  const Window* const window = windows_.find(id.value);
  return window == nullptr ? 0 : window->next_key;
}

Status MemoryTable::free_window(WindowId id) {
  std::unique_lock lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr) return Status(Code::not_found, "free_window: no such window");
  if (window->pending != 0) {
    return Status(Code::failed_precondition,
                  "free_window: a bind or invalidate that names it has not been executed");
  }
  if (const std::uint32_t place = index_.find(window->bound_key); place != kNone) erase_key(place);
  windows_.erase(id.value);
  wait_for_sampling(lock);
  return {};
}

bool MemoryTable::take_window_key(WindowId id, std::uint64_t& key) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr) return false;
  key = window->next_key;
  window->next_key = random_key();
  ++window->pending;
  return true;
}

bool MemoryTable::hold(WindowId id) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window == nullptr) return false;
  ++window->pending;
  return true;
}

void MemoryTable::release(WindowId id) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window != nullptr && window->pending != 0) --window->pending;
}

CompletionStatus MemoryTable::bind(WindowId id, std::uint64_t bind_key, EndpointId endpoint,
                                   const LocalSegment& target) {
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window != nullptr && window->pending != 0) --window->pending;
  const Registration* const registration =
      registration_of(target.memory, target.address, target.length);
  if (window == nullptr || window->bound_key != 0 || registration == nullptr) {
    return CompletionStatus::bind_error;
  }
  if (registration->use != MemoryUse::bulk && registration->use != MemoryUse::bulk_window_only) {
    return CompletionStatus::bind_error;
  }
  if (index_.find(bind_key) != kNone) return CompletionStatus::bind_error;  // 2^-64
  Key key;
  key.key = bind_key;
  key.window = true;
  key.endpoint = endpoint;
  key.base = target.address;
  key.length = target.length;
  key.memory = target.memory;
  key.kind = registration->kind->cpu_readable() ? nullptr : registration->kind;
  insert_key(key);
  window->bound_key = bind_key;
  window->endpoint = endpoint;
  return CompletionStatus::success;
}

CompletionStatus MemoryTable::invalidate(WindowId id, EndpointId endpoint) {
  // Executed by the poller, which is not sampling now: nothing to wait for.
  const std::lock_guard lock(mutex_);
  Window* const window = windows_.find(id.value);
  if (window != nullptr && window->pending != 0) --window->pending;
  if (window == nullptr || window->bound_key == 0 || window->endpoint != endpoint) {
    return CompletionStatus::local_error;
  }
  if (const std::uint32_t place = index_.find(window->bound_key); place != kNone) erase_key(place);
  window->bound_key = 0;
  return CompletionStatus::success;
}

// --- READ service --------------------------------------------------------------------------

MemoryTable::Sampling::Sampling(MemoryTable& table) : table_(table) {
  const std::lock_guard lock(table_.mutex_);
  table_.sampling_ = true;
}

MemoryTable::Sampling::~Sampling() {
  bool wake = false;
  {
    const std::lock_guard lock(table_.mutex_);
    table_.sampling_ = false;
    ++table_.samplings_;
    wake = table_.waiting_ != 0;
  }
  if (wake) table_.sampled_.notify_all();
}

bool MemoryTable::Sampling::resolve(EndpointId endpoint, PeerGroup group, std::uint64_t wanted,
                                    std::uint64_t address, std::uint64_t length,
                                    Readable& out) const {
  const std::lock_guard lock(table_.mutex_);
  const std::uint32_t place = table_.index_.find(wanted);
  if (place == kNone) return false;
  const Key& key = table_.keys_[place];
  if (key.window ? key.endpoint != endpoint : key.group != group) return false;
  if (address > key.length || length > key.length - address) return false;
  out = {.address = key.base + address, .kind = key.kind};
  return true;
}

void MemoryTable::wait_for_sampling(std::unique_lock<std::mutex>& lock) {
  if (!sampling_) return;
  const std::uint64_t seen = samplings_;
  ++waiting_;
  sampled_.wait(lock, [this, seen] { return samplings_ != seen; });
  --waiting_;
}

MemoryTable::Counts MemoryTable::counts() const {
  const std::lock_guard lock(mutex_);
  return {
      .registrations = registrations_.size(), .keys = index_.size(), .windows = windows_.size()};
}

}  // namespace pawl::fabric::tcp
