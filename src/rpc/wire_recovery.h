// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rpc/handshake.h"
#include "rpc/wire.h"

/// Frames of the session that follow the loss of a data endpoint (docs/wire.md, "Loss of a data
/// endpoint"). They travel on the control endpoint.
namespace pawl::rpc {

/// 16 bytes: u8 endpoint index, u8 role, u16 reserved, u32 endpoint incarnation, u64 reserved.
/// Call id 0: this endpoint is in ERR here, take your half to ERR. Else: what became of the
/// request with this call id and attempt, which was sent there?
struct DataLost {
  static constexpr std::size_t kBytes = 16;
  std::uint8_t endpoint = 0;
  DataRole role = DataRole::connecting_side_reads;
  std::uint32_t incarnation = 0;
};

/// What the callee knows of a request after it emptied what had arrived.
enum class RequestFate : std::uint8_t {
  not_seen = 0,  ///< and is refused from now on: ran = no
  running = 1,   ///< its answer comes on the control endpoint
  answered = 2,  ///< the answer is sent again, on the control endpoint
};

/// 8 bytes: u8 fate, 7 reserved. Call id and attempt are those of the question.
struct DataLostAnswer {
  static constexpr std::size_t kBytes = 8;
  RequestFate fate = RequestFate::not_seen;
};

/// 32 bytes: u64 lease id, u64 generation, u64 epoch, u8 endpoint to lend on, 7 reserved. Asks for
/// the same lease again after its READ was lost or refused; works only while it is LENT. For leases
/// with window keys; region keys are good on every data endpoint of the connection.
struct Relend {
  static constexpr std::size_t kBytes = 32;
  LeaseName lease;
  std::uint64_t epoch = 0;
  std::uint8_t endpoint = 0;
};

/// 24 bytes: u64 lease id, u64 generation, u8 code (ok, or stale: nothing more follows), 7
/// reserved; then with ok the lease descriptor and its segments.
struct RelendAnswer {
  static constexpr std::size_t kFixedBytes = 24;
  LeaseName lease;
  Code code = Code::ok;
  std::optional<LeaseDescriptor> descriptor;
  std::span<const std::byte> segments;
};

inline constexpr std::size_t kRelendSegmentsMax = 16;  ///< so that it fits in any receive

std::size_t encode(const DataLost& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, DataLost& out, const char*& why);
std::size_t encode(const DataLostAnswer& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, DataLostAnswer& out, const char*& why);
std::size_t encode(const Relend& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Relend& out, const char*& why);
std::size_t encoded_bytes(const RelendAnswer& body);
std::size_t encode(const RelendAnswer& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, RelendAnswer& out, const char*& why);

}  // namespace pawl::rpc
