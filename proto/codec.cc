// SPDX-License-Identifier: Apache-2.0
#include "pawl/proto/codec.h"

#include <google/protobuf/message_lite.h>

#include <climits>
#include <string>
#include <utility>

namespace pawl::proto {
namespace {

const char* role_name(Role role) { return role == Role::request ? "request" : "reply"; }

/// "request of demo.Blocks/Get"
std::string subject(const Method& method, Role role) {
  return std::string(role_name(role)) + " of " + method.name;
}

/// A request is the caller's to mend; a reply that does not fit is a bug at either end.
Code fault(Role role) { return role == Role::request ? Code::invalid_argument : Code::internal; }

/// Reads the outermost level of a message: tags, lengths and groups, no names.
class Skimmer {
 public:
  explicit Skimmer(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// Skips one field. False at the end, or if `problem()` is not empty.
  bool next() {
    if (at_ == bytes_.size()) return false;
    start_ = at_;
    field_ = 0;
    std::uint64_t tag = 0;
    if (!varint(tag)) return fail("a tag is cut off or too long");
    field_ = tag >> 3;
    if (field_ == 0 || field_ > kFieldNumberMax) return fail("there is no such field number");
    return skip(static_cast<unsigned>(tag & 7));
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  static constexpr std::uint64_t kFieldNumberMax = (1u << 29) - 1;
  static constexpr int kVarintBytesMax = 10;

  bool skip(unsigned wire_type) {
    std::uint64_t value = 0;
    switch (wire_type) {
      case 0:
        return varint(value) || fail("a number is cut off or too long");
      case 1:
        return advance(8);
      case 2:
        if (!varint(value)) return fail("a length is cut off or too long");
        return advance(value);
      case 3:  // groups: their content is a sequence of fields like any other
      case 4:
        return true;
      case 5:
        return advance(4);
      default:
        return fail("there is no wire type " + std::to_string(wire_type));
    }
  }

  bool varint(std::uint64_t& value) {
    value = 0;
    for (int i = 0; i < kVarintBytesMax && at_ < bytes_.size(); ++i) {
      const auto byte = std::to_integer<std::uint64_t>(bytes_[at_++]);
      value |= (byte & 0x7f) << (7 * i);
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  bool advance(std::uint64_t bytes) {
    if (bytes > bytes_.size() - at_) {
      return fail("wants " + std::to_string(bytes) + " bytes where " +
                  std::to_string(bytes_.size() - at_) + " are left");
    }
    at_ += static_cast<std::size_t>(bytes);
    return true;
  }

  bool fail(const std::string& what) {
    problem_ = field_ == 0 ? std::string() : "field " + std::to_string(field_) + " ";
    problem_ +=
        "at byte " + std::to_string(start_) + " of " + std::to_string(bytes_.size()) + ": " + what;
    return false;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;
  std::uint64_t field_ = 0;
  std::string problem_;
};

}  // namespace

std::string describe_malformed(std::span<const std::byte> bytes) {
  Skimmer skimmer(bytes);
  while (skimmer.next()) {
  }
  if (!skimmer.problem().empty()) return skimmer.problem();
  return "a field has another type, or a nested message or a text (UTF-8) in it is malformed";
}

Result<Payload> Protobuf::encode(const Method& method, Role role,
                                 const google::protobuf::MessageLite& from) {
  if (!from.IsInitialized()) {
    return Status::with_detail(fault(role),
                               subject(method, role) + " is no complete " + from.GetTypeName() +
                                   ": required but not set: " + from.InitializationErrorString());
  }
  const std::size_t bytes = from.ByteSizeLong();
  if (bytes > INT_MAX) {
    return Status::with_detail(Code::too_large, subject(method, role) + " has " +
                                                    std::to_string(bytes) +
                                                    " bytes; move bulk data with (pawl.bulk)");
  }
  Payload payload(bytes);
  if (bytes != 0) {
    from.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(payload.bytes().data()));
  }
  return payload;
}

Status Protobuf::decode(const Method& method, Role role, std::span<const std::byte> bytes,
                        google::protobuf::MessageLite& to) {
  const Ran ran = role == Role::request ? Ran::no : Ran::yes;
  const bool fits = bytes.size() <= INT_MAX;
  if (fits && to.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    if (to.IsInitialized()) return Status();
    return Status::with_detail(fault(role),
                               subject(method, role) + " is no complete " + to.GetTypeName() +
                                   ": required but not set: " + to.InitializationErrorString(),
                               ran);
  }
  return Status::with_detail(
      fault(role),
      subject(method, role) + " is not a valid " + to.GetTypeName() + ": " +
          (fits ? describe_malformed(bytes) : std::string("larger than 2 GiB")),
      ran);
}

}  // namespace pawl::proto
