// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "fuzz/input.h"
#include "rpc/wire.h"

namespace pawl::fuzz {

/// Decodes the body of a frame and asserts what holds for every decoder: what is refused has a
/// reason; views lie in the body; what was decoded encodes to the bytes that it came from, except
/// for reserved bytes and unknown codes, and is then decoded to the same again. True if it was
/// accepted. `body` should be the end of a block of exact size.
bool check_body(const rpc::FrameHeader& header, Input body);

/// True if a connection must be over after this message, whatever its state is: by the rules for
/// single messages, and since a lease has another guard than `guards`, the negotiated ones. The
/// other way round nothing is known.
bool breaks_a_rule(Input message, std::uint64_t guards);

}  // namespace pawl::fuzz
