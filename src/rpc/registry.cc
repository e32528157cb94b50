// SPDX-License-Identifier: Apache-2.0
#include "rpc/registry.h"

#include <string>

namespace pawl::rpc {

Result<std::shared_ptr<const Registry>> Registry::make(std::span<Service* const> services) {
  auto registry = std::make_shared<Registry>();
  for (Service* service : services) {
    const std::span<const Method> methods = service->methods();
    for (std::size_t i = 0; i < methods.size(); ++i) {
      const auto [at, added] =
          registry->methods_.try_emplace(methods[i].hash, Entry{service, i, methods[i]});
      if (added) continue;
      return Status::with_detail(Code::already_exists,
                                 std::string("the methods ") + at->second.method.name + " and " +
                                     methods[i].name +
                                     " are the same on the wire: serve one of them, or rename it");
    }
  }
  return std::shared_ptr<const Registry>(std::move(registry));
}

}  // namespace pawl::rpc
