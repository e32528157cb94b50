// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "memory/piece.h"

namespace pawl::memory {

namespace {

Status named(const Status& error, const Registrar& registrar, const Piece& piece) {
  std::string text("registering ");
  text += std::to_string(piece.memory().size());
  text += " bytes of ";
  text += piece.kind().name();
  text += " memory with ";
  text += registrar.registrar_name();
  text += ": ";
  text += error.what();
  return Status::with_detail(error.code(), std::move(text), error.ran(), error.native());
}

}  // namespace

Devices::~Devices() { PAWL_CHECK(pieces_.empty(), "registered memory outlives its pool"); }

bool Devices::register_with(std::size_t device, Piece& piece) {
  Device& d = devices_[device];
  const MemoryUse use = piece.use_ == MemoryUse::bulk ? d.bulk_use : piece.use_;
  Result<MemoryHandle> handle = d.registrar->register_memory(piece.memory_, piece.kind_, use);
  if (!handle.ok()) {
    d.last_error = named(handle.status(), *d.registrar, piece);
    return false;
  }
  PAWL_CHECK(handle->value != 0, "a device registered memory under the handle 0");
  piece.handles_[device].store(handle->value, std::memory_order_release);
  return true;
}

void Devices::deregister_from(std::size_t device, Piece& piece) {
  const std::uint64_t handle = piece.handles_[device].exchange(0, std::memory_order_acq_rel);
  if (handle == 0) return;
  Device& d = devices_[device];
  if (Status done = d.registrar->deregister_memory(MemoryHandle{handle}); !done.ok()) {
    d.last_error = std::move(done);
  }
}

Result<std::size_t> Devices::attach(Registrar& registrar, MemoryUse bulk_use) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kDevicesMax; ++i) {
    if (devices_[i].registrar != nullptr) continue;
    devices_[i] = Device{&registrar, bulk_use, Status()};
    for (Piece& piece : pieces_) register_with(i, piece);
    return i;
  }
  return Status(Code::resource_exhausted,
                "a pool serves at most 32 devices at a time: detach one, or use a second pool");
}

void Devices::detach(std::size_t device) {
  std::lock_guard lock(mutex_);
  if (device >= kDevicesMax || devices_[device].registrar == nullptr) return;
  for (Piece& piece : pieces_) deregister_from(device, piece);
  devices_[device] = Device{};
}

// Of two owners of the same bytes each would hand out what the other lends.
bool Devices::overlaps(const Piece& piece) {
  const std::span<const std::byte> memory = piece.memory();
  for (const Piece& other : pieces_) {
    const std::span<const std::byte> taken = other.memory();
    if (memory.data() < taken.data() + taken.size() &&
        taken.data() < memory.data() + memory.size() &&
        !other.leaving_.load(std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

Status Devices::add(Piece& piece) {
  std::lock_guard lock(mutex_);
  if (overlaps(piece)) {
    return Status(Code::failed_precondition,
                  "these bytes belong to the pool already, as one of its buffers or to another "
                  "Region: close that Region, or drop it and its Blocks, and let each byte have "
                  "one owner");
  }
  std::size_t devices = 0, accepted = 0, refused_by = 0;
  for (std::size_t i = 0; i < kDevicesMax; ++i) {
    if (devices_[i].registrar == nullptr) continue;
    ++devices;
    if (register_with(i, piece)) {
      ++accepted;
    } else {
      refused_by = i;
    }
  }
  if (devices != 0 && accepted == 0) return devices_[refused_by].last_error;
  pieces_.push_back(piece);
  return {};
}

void Devices::remove(Piece& piece) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kDevicesMax; ++i) deregister_from(i, piece);
  piece.unlink();
}

Status Devices::last_error(std::size_t device) const {
  std::lock_guard lock(mutex_);
  return device < kDevicesMax ? devices_[device].last_error : Status();
}

std::size_t Devices::pieces() const {
  std::lock_guard lock(mutex_);
  return pieces_.count();
}

}  // namespace pawl::memory
