// SPDX-License-Identifier: Apache-2.0
#include "rpc/system_fabric.h"

#include "fabric/tcp/tcp_fabric.h"

namespace pawl::rpc {

namespace {
class TcpSource final : public detail::FabricSource {
 public:
  explicit TcpSource(const char* reason) : reason_(reason) {}
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    return fabric::tcp::make_tcp_fabric();
  }
  [[nodiscard]] const char* name() const override { return "tcp"; }
  [[nodiscard]] const char* reason() const override { return reason_; }

 private:
  const char* const reason_;
};
}  // namespace

Result<std::unique_ptr<detail::FabricSource>> make_system_source(std::string_view name) {
  const char* reason = nullptr;
  if (name == "tcp") reason = "asked for";
  if (name == "auto") reason = "this build has no RDMA fabric";
  if (reason == nullptr) {
    return Status::with_detail(
        Code::invalid_argument,
        "there is no fabric \"" + std::string(name) + "\": this build has \"tcp\" and \"auto\"");
  }
  return std::unique_ptr<detail::FabricSource>(std::make_unique<TcpSource>(reason));
}

}  // namespace pawl::rpc
