// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes for generated code: as messages through the codec, as a request to a generated
// service, as the reply to a generated client.
#include <string>

#include "fuzz/input.h"
#include "fuzz/one_call.h"
#include "legacy.pb.h"
#include "pawl/proto/codec.h"
#include "sample.pawl.h"

namespace pawl::fuzz {
namespace {

using Messages = sample::v1::EverythingMethods;

constexpr std::size_t kSentenceBytesMax = 512;

template <class Message>
void through_the_codec(const Method& method, Input bytes) {
  Message message;
  const proto::Role role = proto::Role::request;
  const Status status = proto::Protobuf::decode(method, role, bytes, message);
  const std::string problem = proto::describe_malformed(bytes);
  require(!problem.empty() && problem.size() < kSentenceBytesMax, "a problem is one sentence");
  if (!status.ok()) {
    require(status.code() == Code::invalid_argument && status.ran() == Ran::no,
            "a request that is none is the caller's fault, and did not run");
    require(status.what().find(method.name) != std::string_view::npos,
            "what is refused says of which method");
    return;
  }
  const Result<Payload> once = proto::Protobuf::encode(method, role, message);
  require(once.ok(), "what was decoded can be encoded");
  Message again;
  require(proto::Protobuf::decode(method, role, once->bytes(), again).ok(),
          "what a message encodes to is accepted");
  const Result<Payload> twice = proto::Protobuf::encode(method, role, again);
  require(twice.ok() && equal(once->bytes(), twice->bytes()),
          "a message is the same after encode and decode");
}

class Everything final : public sample::v1::EverythingService {
 public:
  Task<Result<sample::v1::Outer_Reply>> plain(Call&,
                                              const sample::v1::Outer_Request& request) final {
    sample::v1::Outer_Reply reply;
    reply.set_text(request.text());
    co_return reply;
  }
  Task<Result<legacy::Record>> get_http_block2(Call&, const sample::v1::Outer_Request& request,
                                               Download&) final {
    legacy::Record record;  // without its id, which is required, if the number is even
    if (request.number() % 2 == 1) record.set_id(1);
    co_return record;
  }
  Task<Result<sample::v1::Outer_Reply>> put_block(Call&, const legacy::Record& request,
                                                  Upload&) final {
    require(request.has_id(), "a handler gets complete messages only");
    co_return sample::v1::Outer_Reply();
  }
  Task<Status> note(Call&, const sample::v1::Outer_Request&) final { co_return Status(); }
};

void to_a_service(const Method& method, Input bytes) {
  Everything service;
  const Served served = serve_one(service, method, bytes);
  require(!served.connection_over, "a request that is no message does not end its connection");
  require(served.status.has_value() != method.one_way,
          "a request is answered, unless it is one-way");
  if (!served.status || served.status->ok()) return;
  const Status& status = *served.status;
  const bool refused = status.code() == Code::invalid_argument && status.ran() == Ran::no;
  const bool incomplete = status.code() == Code::internal && status.ran() == Ran::yes;
  require(refused || incomplete, "a message that is none says whose fault it is");
  require(!status.what().empty(), "what is refused says why");
}

void to_a_client(Input bytes) {
  using Answer = Outcome<sample::v1::Outer_Reply>;
  std::optional<Answer> answer;
  const auto make = [&](const Channel& channel) {
    const auto keep = [](void* to, Answer got) {
      static_cast<std::optional<Answer>*>(to)->emplace(std::move(got));
    };
    return start(sample::v1::EverythingClient(channel).plain({}), Callback<Answer>{keep, &answer});
  };
  call_one(make, bytes);
  require(answer.has_value(), "a call ends with its response");
  require(answer->ok() || (answer->status().code() == Code::internal && answer->ran() == Ran::yes),
          "a reply that is no message is the callee's fault");
}

}  // namespace

void proto(Input input) {
  Splitter in(input);
  const unsigned kind = in.below(128);  // a node costs more than a message
  const Exact exact(in.rest());
  const Input bytes = exact.bytes();
  if (kind < Messages::kAll.size()) return to_a_service(Messages::kAll[kind], bytes);
  if (kind < 6) return to_a_client(bytes);
  if (kind < 40) return through_the_codec<legacy::Record>(Messages::put_block, bytes);
  through_the_codec<sample::v1::Outer_Request>(Messages::plain, bytes);
}

}  // namespace pawl::fuzz
