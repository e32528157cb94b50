// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pawl/service.h"
#include "pawl/task.h"

namespace pawl::testing {

/// A service whose handlers are functions, for tests.
class FunctionService final : public Service {
 public:
  using Handler =
      std::function<Task<Result<Payload>>(Call&, std::span<const std::byte>, Upload&, Download&)>;

  FunctionService& add(const Method& method, Handler handler) {
    methods_.push_back(method);
    handlers_.push_back(std::move(handler));
    return *this;
  }
  [[nodiscard]] std::span<const Method> methods() const override { return methods_; }
  Operation<Result<Payload>> handle(std::size_t index, Call& call,
                                    std::span<const std::byte> request, Upload& in,
                                    Download& out) override {
    return handlers_[index](call, request, in, out).operation();
  }

 private:
  std::vector<Method> methods_;
  std::vector<Handler> handlers_;
};

}  // namespace pawl::testing
