// SPDX-License-Identifier: Apache-2.0
#include "rpc/system_fabric.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "fabric/tcp/tcp_fabric.h"
#include "fabric/verbs/verbs_fabric.h"

namespace pawl::rpc {

namespace {

using fabric::verbs::VerbsOptions;
using Source = std::unique_ptr<detail::FabricSource>;

constexpr const char* kAskedFor = "asked for";
constexpr const char* kByEnvironment = "by PAWL_FABRIC";
constexpr const char* kNotAskedFor = "RDMA was not asked for";
constexpr std::string_view kVerbs = "verbs";

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

class VerbsSource final : public detail::FabricSource {
 public:
  VerbsSource(VerbsOptions options, const char* reason)
      : options_(std::move(options)), reason_(reason) {}
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    return fabric::verbs::make_verbs_fabric(options_);
  }
  [[nodiscard]] const char* name() const override { return "verbs"; }
  [[nodiscard]] const char* reason() const override { return reason_; }

 private:
  const VerbsOptions options_;
  const char* const reason_;
};

/// ":rxe0", ":rxe0/2" or nothing.
bool parse_port(std::string_view text, VerbsOptions& out) {
  if (text.empty()) return true;
  if (text.front() != ':') return false;
  text.remove_prefix(1);
  const std::size_t slash = text.find('/');
  out.device = text.substr(0, slash);
  if (slash == std::string_view::npos) return !out.device.empty();
  const std::string_view number = text.substr(slash + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.port);
  return !out.device.empty() && error == std::errc() && end == number.data() + number.size() &&
         out.port != 0;
}

Result<Source> make_source(std::string_view name, const char* reason) {
  if (name == "tcp") return Source(std::make_unique<TcpSource>(reason));
  VerbsOptions options;
  if (!name.starts_with(kVerbs) || !parse_port(name.substr(kVerbs.size()), options)) {
    return Status::with_detail(Code::invalid_argument,
                               "there is no fabric \"" + std::string(name) +
                                   "\"; there are \"tcp\", \"verbs\", \"verbs:DEVICE\", "
                                   "\"verbs:DEVICE/PORT\" and \"auto\"");
  }
  const fabric::verbs::PortList ports = fabric::verbs::list_ports(options);
  if (ports.usable.empty()) {
    std::string text = "fabric \"" + std::string(name) + "\"";
    for (const std::string& why : ports.refused) text += ": " + why;
    return Status::with_detail(fabric::verbs::built_in() ? Code::not_found : Code::unimplemented,
                               std::move(text));
  }
  return Source(std::make_unique<VerbsSource>(std::move(options), reason));
}

}  // namespace

Result<Source> make_system_source(std::string_view name) {
  if (name != "auto") return make_source(name, kAskedFor);
  const char* const wanted = std::getenv("PAWL_FABRIC");
  if (wanted == nullptr || *wanted == '\0') return make_source("tcp", kNotAskedFor);
  if (std::string_view(wanted) == "auto") return make_source("tcp", kByEnvironment);
  return make_source(wanted, kByEnvironment);
}

}  // namespace pawl::rpc
