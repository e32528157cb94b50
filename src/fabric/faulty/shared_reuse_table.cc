// SPDX-License-Identifier: Apache-2.0
#include "fabric/faulty/shared_reuse_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace pawl::fabric {
namespace {

constexpr std::size_t kProbesMax = 64;

}  // namespace

Result<SharedReuseTable> SharedReuseTable::create() {
  const int fd = ::memfd_create("pawl-reuse", 0);
  if (fd < 0) {
    return Status(Code::resource_exhausted, "memfd_create failed", Ran::no, errno);
  }
  if (::ftruncate(fd, kSlots * sizeof(Slot)) != 0) {
    const int error = errno;
    ::close(fd);
    return Status(Code::resource_exhausted, "no memory for the reuse table", Ran::no, error);
  }
  return map(fd);
}

Result<SharedReuseTable> SharedReuseTable::attach(int fd) {
  const int own = ::fcntl(fd, F_DUPFD, 0);
  if (own < 0) {
    return Status(Code::invalid_argument, "not the descriptor of a reuse table", Ran::no, errno);
  }
  return map(own);
}

Result<SharedReuseTable> SharedReuseTable::map(int fd) {
  void* memory = ::mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    return Status(Code::resource_exhausted, "the reuse table cannot be mapped", Ran::no, error);
  }
  // Zero pages are valid atomics.
  return SharedReuseTable(fd, static_cast<Slot*>(memory));
}

SharedReuseTable::SharedReuseTable(SharedReuseTable&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), slots_(std::exchange(other.slots_, nullptr)) {}

SharedReuseTable::~SharedReuseTable() {
  if (slots_ != nullptr) ::munmap(slots_, kSlots * sizeof(Slot));
  if (fd_ >= 0) ::close(fd_);
}

SharedReuseTable::Slot* SharedReuseTable::find(std::uint64_t key, bool make) const {
  if (key == 0) return nullptr;
  const std::uint64_t hash = (key * 0x9e3779b97f4a7c15u) >> 32;
  for (std::size_t i = 0; i < kProbesMax; ++i) {
    Slot& slot = slots_[(hash + i) % kSlots];
    std::uint64_t found = slot.key.load(std::memory_order_acquire);
    if (found == 0 && make &&
        slot.key.compare_exchange_strong(found, key, std::memory_order_acq_rel)) {
      return &slot;
    }
    if (found == key) return &slot;
    if (found == 0) return nullptr;
  }
  return nullptr;
}

void SharedReuseTable::on_expose(PeerGroup, RemoteAddress remote, const std::byte*) {
  if (Slot* slot = find(remote.key, true); slot != nullptr) {
    slot->exposes.fetch_add(1, std::memory_order_acq_rel);
  }
}

std::uint64_t SharedReuseTable::exposes(std::uint64_t key) const {
  const Slot* slot = find(key, false);
  return slot == nullptr ? 0 : slot->exposes.load(std::memory_order_acquire);
}

void SharedReuseTable::set_content_bytes(std::uint64_t key, std::uint64_t bytes) {
  if (Slot* slot = find(key, false); slot != nullptr) {
    slot->content_bytes.store(bytes, std::memory_order_release);
  }
}

std::uint64_t SharedReuseTable::content_bytes(std::uint64_t key) const {
  const Slot* slot = find(key, false);
  return slot == nullptr ? 0 : slot->content_bytes.load(std::memory_order_acquire);
}

std::uint64_t SharedReuseTable::on_read_posted(RemoteAddress remote) { return exposes(remote.key); }

ReadVerdict SharedReuseTable::on_read_executed(RemoteAddress remote, std::uint64_t posted) {
  const std::uint64_t now = exposes(remote.key);
  if (now == 0 || posted == 0) return ReadVerdict::unknown;
  return now == posted ? ReadVerdict::same : ReadVerdict::reused;
}

}  // namespace pawl::fabric
