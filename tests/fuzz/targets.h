// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

/// What the fuzzers feed. Each takes arbitrary bytes, starts in the same state every time, and ends
/// the process by a sentence if a property does not hold.
namespace pawl::fuzz {

using Input = std::span<const std::byte>;

void handshake(Input input);    ///< a hello of connect or accept
void frames(Input input);       ///< a message, or one frame
void descriptors(Input input);  ///< leases and their segments
void metadata(Input input);
void tickets(Input input);
void proto(Input input);  ///< bytes for generated services, clients and their messages
void tcp_wire(Input input);
void address(Input input);
void connection(Input input);  ///< a program for two peers of a node: connection_peer.h

}  // namespace pawl::fuzz
