// SPDX-License-Identifier: Apache-2.0
// EXPECT-OK
// The options' extensions are variables pawl::bulk, pawl::one_way and pawl::idempotent: no name in
// the public headers may be in their shadow, whichever is included first.
#include "sample.pb.h"

#pragma GCC diagnostic error "-Wshadow"
#pragma GCC diagnostic error "-Wconversion"
#pragma GCC diagnostic error "-Wold-style-cast"
#include "sample.pawl.h"

class Nothing final : public sample::v1::EmptyService {};

int main() {
  const Nothing nothing;
  return static_cast<int>(nothing.methods().size());
}
