// SPDX-License-Identifier: Apache-2.0
#include "pawl/proto/server.h"

#include <string>

namespace pawl::proto {

Operation<Result<Payload>> no_such_method(std::size_t index) {
  return Operation<Result<Payload>>::ready(Status::with_detail(
      Code::unimplemented, "the service has no method number " + std::to_string(index)));
}

}  // namespace pawl::proto
