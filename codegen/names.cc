// SPDX-License-Identifier: Apache-2.0
#include "names.h"

#include <algorithm>
#include <array>

namespace pawl::codegen {
namespace {

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Sorted.
constexpr std::array kKeywords = std::to_array<std::string_view>({
    "alignas",       "alignof",     "and",
    "and_eq",        "asm",         "auto",
    "bitand",        "bitor",       "bool",
    "break",         "case",        "catch",
    "char",          "char16_t",    "char32_t",
    "char8_t",       "class",       "co_await",
    "co_return",     "co_yield",    "compl",
    "concept",       "const",       "const_cast",
    "consteval",     "constexpr",   "constinit",
    "continue",      "decltype",    "default",
    "delete",        "do",          "double",
    "dynamic_cast",  "else",        "enum",
    "explicit",      "export",      "extern",
    "false",         "float",       "for",
    "friend",        "goto",        "if",
    "inline",        "int",         "long",
    "mutable",       "namespace",   "new",
    "noexcept",      "not",         "not_eq",
    "nullptr",       "operator",    "or",
    "or_eq",         "private",     "protected",
    "public",        "register",    "reinterpret_cast",
    "requires",      "return",      "short",
    "signed",        "sizeof",      "static",
    "static_assert", "static_cast", "struct",
    "switch",        "template",    "this",
    "thread_local",  "throw",       "true",
    "try",           "typedef",     "typeid",
    "typename",      "union",       "unsigned",
    "using",         "virtual",     "void",
    "volatile",      "wchar_t",     "while",
    "xor",           "xor_eq",
});
static_assert(std::is_sorted(kKeywords.begin(), kKeywords.end()));

}  // namespace

std::string snake_case(std::string_view camel) {
  std::string snake;
  for (std::size_t i = 0; i < camel.size(); ++i) {
    const char c = camel[i];
    if (is_upper(c) && i > 0) {
      const char before = camel[i - 1];
      const bool word_ends = is_lower(before) || is_digit(before);
      const bool word_begins = is_upper(before) && i + 1 < camel.size() && is_lower(camel[i + 1]);
      if (word_ends || word_begins) snake += '_';
    }
    snake += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return snake;
}

bool is_keyword(std::string_view word) {
  return std::binary_search(kKeywords.begin(), kKeywords.end(), word);
}

std::string service_stem(std::string_view service) {
  constexpr std::string_view kSuffix = "Service";
  if (service.size() > kSuffix.size() && service.ends_with(kSuffix)) {
    service.remove_suffix(kSuffix.size());
  }
  return std::string(service);
}

std::string namespace_of(std::string_view package) {
  std::string result;
  for (const char c : package) {
    if (c == '.') {
      result += "::";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace pawl::codegen
