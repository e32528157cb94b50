// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as the metadata of a request, against a reader of its own. With
// -DPAWL_FUZZ_CONTROL the decoder under test is a wrong one, which the fuzzer must find.
#include <optional>

#include "base/bytes.h"
#include "fuzz/input.h"
#include "rpc/wire.h"

namespace pawl::fuzz {
namespace {

std::string_view text_of(Input bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Every entry, or nothing if they do not fill `encoded` exactly.
std::optional<std::vector<Metadata>> read_all(Input encoded) {
  std::vector<Metadata> list;
  while (!encoded.empty()) {
    if (encoded.size() < 6) return std::nullopt;
    Splitter head(encoded);
    const std::size_t key = head.u16();
    const std::size_t value = head.u32();
    encoded = encoded.subspan(6);
    if (key > encoded.size() || value > encoded.size() - key) return std::nullopt;
    list.push_back({text_of(encoded.first(key)), text_of(encoded.subspan(key, value))});
    encoded = encoded.subspan(key + value);
  }
  return list;
}

#ifdef PAWL_FUZZ_CONTROL
/// Believes the length of a value.
std::string_view find(Input encoded, std::string_view key) {
  Reader reader(encoded);
  while (reader.ok() && reader.remaining() > 0) {
    const std::uint16_t key_bytes = reader.u16();
    const std::uint32_t value_bytes = reader.u32();
    const std::string_view name = reader.text(key_bytes);
    const std::string_view value(name.data() + name.size(), value_bytes);
    reader.skip(value_bytes);
    if (name == key) return value;
  }
  return {};
}
#else
std::string_view find(Input encoded, std::string_view key) {
  return rpc::find_metadata(encoded, key);
}
#endif

std::vector<std::byte> request_with(Input encoded) {
  rpc::Request request;
  request.metadata = encoded;
  std::vector<std::byte> bytes(rpc::encoded_bytes(request));
  rpc::encode(request, bytes);
  return bytes;
}

}  // namespace

void metadata(Input input) {
  Splitter in(input);
  const Exact key(in.bytes(in.below(8)));
  const Exact exact(in.bytes(kMetadataBytesMax));
  const Input encoded = exact.bytes();
  const std::optional<std::vector<Metadata>> list = read_all(encoded);

  // A question is harmless whatever the bytes are.
  const std::string_view found = find(encoded, key.text());
  require_inside(found, encoded);

  rpc::Request request;
  const char* why = nullptr;
  const Exact body(request_with(encoded));
  require(rpc::decode(body.bytes(), request, why) == list.has_value(),
          "a request is refused exactly if its metadata is not well formed");
  if (!list.has_value()) {
    require(why != nullptr && *why != '\0', "what is refused says why");
    return;
  }
  require(equal(request.metadata, encoded), "metadata comes out as it went in");
  const auto first = std::find_if(list->begin(), list->end(),
                                  [&](const Metadata& each) { return each.key == key.text(); });
  require(found == (first == list->end() ? std::string_view() : first->value),
          "the first value of a key is found");
  std::vector<std::byte> again(rpc::metadata_encoded_bytes(*list));
  require(rpc::encode_metadata(*list, again) == again.size() && equal(again, encoded),
          "metadata encodes to the bytes that it came from");
}

}  // namespace pawl::fuzz
