// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace pawl::tools {

/// Writes one JSON object, in the order of the calls. Keys are literals without anything to escape.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view value) {
    std::string quoted = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') quoted += '\\';
      if (static_cast<unsigned char>(c) < 0x20) {
        quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        quoted += c;
      }
    }
    return put(key, quoted + "\"");
  }
  JsonObject& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonObject& add(std::string_view key, std::same_as<bool> auto value) {
    return put(key, value ? "true" : "false");
  }
  JsonObject& add(std::string_view key, std::unsigned_integral auto value) requires(
      !std::same_as<decltype(value), bool>) {
    return put(key, fmt::to_string(value));
  }
  JsonObject& add(std::string_view key, double value) {
    return put(key, fmt::format("{:.3f}", value));
  }
  /// `values` are JSON already.
  JsonObject& add_list(std::string_view key, const std::vector<std::string>& values) {
    return put(key, fmt::format("[{}]", fmt::join(values, ", ")));
  }
  JsonObject& add_object(std::string_view key, const JsonObject& value) {
    return put(key, value.text());
  }

  [[nodiscard]] std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonObject& put(std::string_view key, std::string_view json) {
    members_ += fmt::format("{}\"{}\": {}", members_.empty() ? "" : ", ", key, json);
    return *this;
  }

  std::string members_;
};

}  // namespace pawl::tools
