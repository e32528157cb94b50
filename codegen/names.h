// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pawl::codegen {

/// "GetBlock" → "get_block", "HTTPGet" → "http_get", "GetV2" → "get_v2".
std::string snake_case(std::string_view camel);

/// True for the words that C++20 keeps for itself.
bool is_keyword(std::string_view word);

/// "Blocks" and "BlocksService" → "Blocks": what the names of a service's classes start with.
std::string service_stem(std::string_view service);

/// "demo.v1" → "demo::v1".
std::string namespace_of(std::string_view package);

}  // namespace pawl::codegen
