// SPDX-License-Identifier: Apache-2.0
// Bulk bytes in memory that only the copy hooks of its kind can touch, through the whole stack and
// in both directions: nobody on the way loads or stores them directly.
#include <string>

#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::holds;

constexpr Method kGet = make_method("test.Protected/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Protected/Put", BulkDirection::upload);

struct Kinds {
  testing::ProtectedMemory server_memory, client_memory;  // outlive the nodes
};

class ProtectedTransfer : protected Kinds, public testing::StackFixture {
 protected:
  ProtectedTransfer() {
    service_.add(kGet,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   const std::uint64_t bytes = testing::number(request);
                   out.add(filled(*server_, 1, bytes));
                   out.add(filled(*server_, 2, bytes).slice(bytes / 4, bytes / 2));
                   co_return Payload();
                 });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put(call, in);
    });
    NodeOptions server, client;
    server.pool.kind = &server_memory;
    client.pool.kind = &client_memory;
    start(server, client);
  }
  Task<Result<Payload>> put(Call& call, Upload& in) {
    Buffer buffer = co_await ok(in.pull(call.pool()));
    landed_ = std::move(buffer).freeze();
    co_return Payload();
  }
  static Block filled(Node& node, std::uint64_t tag, std::size_t bytes) {
    std::vector<std::byte> content(bytes);
    testing::fill(content, tag);
    Result<Buffer> buffer = node.pool().try_acquire(bytes);
    EXPECT_TRUE(buffer.ok() && !buffer->host_accessible());
    EXPECT_TRUE(buffer->copy_in(0, content).ok());
    return std::move(*buffer).freeze();
  }
  static std::vector<std::byte> content(const Block& block) {
    std::vector<std::byte> bytes(block.size());
    EXPECT_TRUE(block.copy_out(0, bytes).ok());
    return bytes;
  }
  auto get(Into into, std::uint64_t bytes) {
    return world_.run(*client_,
                      channel_.call(kGet, testing::payload(bytes), std::move(into), CallOptions()));
  }

  Block landed_;
};

TEST_F(ProtectedTransfer, Download) {
  for (const std::size_t bytes : {std::size_t{500'000}, std::size_t{5000}, std::size_t{200}}) {
    const Outcome<Pulled<Payload>> got = get(into(client_->pool()), bytes);
    ASSERT_TRUE(got.ok()) << got.to_string();
    ASSERT_EQ(got->parts().size(), 2u);
    EXPECT_TRUE(holds(content(*got->parts()[0]), 1)) << bytes;
    EXPECT_TRUE(holds(content(*got->parts()[1]), 2, bytes / 4)) << bytes;
  }
}

TEST_F(ProtectedTransfer, DownloadIntoARegion) {
  constexpr std::size_t kBytes = 64 * 4096;
  const std::span<std::byte> memory = *client_memory.allocate(kBytes);
  RegionOptions options;
  options.kind = &client_memory;
  const std::shared_ptr<void> keep_alive(memory.data(),
                                         [=, this](void*) { client_memory.free(memory); });
  const Result<Region> region = Region::create(client_->pool(), memory, keep_alive, options);
  ASSERT_TRUE(region.ok());
  const Outcome<Pulled<Payload>> got =
      get(into(*region, std::vector<ByteRange>{{4096, 40'000}, {100'000, 20'000}}), 40'000);
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_TRUE(holds(content(*got->parts()[0]), 1));
  EXPECT_TRUE(holds(content(*got->parts()[1]), 2, 10'000));
  EXPECT_TRUE(got->parts()[0]->bytes().data() == memory.data() + 4096);
}

TEST_F(ProtectedTransfer, Upload) {
  for (const std::size_t bytes : {std::size_t{500'000}, std::size_t{5000}, std::size_t{200}}) {
    const Outcome<Payload> done = world_.run(
        *client_, channel_.call(kPut, Payload(), lend(filled(*client_, 3, bytes)), CallOptions()));
    ASSERT_TRUE(done.ok()) << done.to_string();
    EXPECT_EQ(landed_.size(), bytes);
    EXPECT_TRUE(holds(content(landed_), 3));
  }
}

}  // namespace
}  // namespace pawl
