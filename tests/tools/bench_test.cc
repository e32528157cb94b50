// SPDX-License-Identifier: Apache-2.0
// The parts of `pawl bench`: what is counted, compared and written.
#include "tools/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "bench.pawl.h"
#include "pawl/node.h"
#include "tools/bench_board.h"
#include "tools/bench_iperf.h"
#include "tools/bench_machine.h"
#include "tools/bench_pairs.h"
#include "tools/bench_pattern.h"
#include "tools/bench_row.h"
#include "tools/bench_socket.h"
#include "tools/bench_table.h"

namespace pawl::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SampleResult sample(std::uint64_t calls, Duration each, std::uint64_t bytes_each) {
  SampleResult result;
  result.calls = calls;
  result.bytes = calls * bytes_each;
  result.elapsed = each * static_cast<std::int64_t>(calls);
  result.client_cpu = result.elapsed / 2;
  result.server_cpu = result.elapsed / 4;
  for (std::uint64_t i = 0; i < calls; ++i) result.times.add(each);
  result.counts.served = calls;
  return result;
}

TEST(BenchSpread, MedianLeastAndMost) {
  const Spread odd = Spread::of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(Spread::of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(Spread::of({}).median, 0);
}

TEST(BenchRowTest, FiguresOfASample) {
  const SampleResult result = sample(10, 100us, 1000);
  EXPECT_EQ(figure_of(result, Figure::p50_us), 100);
  EXPECT_EQ(figure_of(result, Figure::calls_per_s), 10'000);
  EXPECT_EQ(figure_of(result, Figure::goodput_bytes_per_s), 10'000'000);
  EXPECT_EQ(figure_of(result, Figure::client_cpu_ns_per_call), 50'000);
  EXPECT_EQ(figure_of(result, Figure::server_cpu_ns_per_call), 25'000);
  EXPECT_EQ(figure_of(result, Figure::cpu_ns_per_byte), 75);
  EXPECT_EQ(figure_of(SampleResult(), Figure::calls_per_s), 0);
}

TEST(BenchRowTest, RatiosAreOfSamplesOfTheSameTurn) {
  BenchRow pawl;
  BenchRow raw;
  pawl.settings.shape = raw.settings.shape = Shape::download;
  pawl.samples = {sample(5, 200us, 1), sample(5, 300us, 1), sample(5, 1000us, 1)};
  raw.samples = {sample(5, 100us, 1), sample(5, 100us, 1), sample(5, 1000us, 1)};
  pawl.compare("raw", raw);
  pawl.compare("raw", pawl);  // it is there already
  const BenchRow::Ratios* ratios = pawl.ratios_to("raw");
  ASSERT_NE(ratios, nullptr);
  EXPECT_EQ(ratios->p50.median, 2);
  EXPECT_EQ(ratios->p50.min, 1);
  EXPECT_EQ(ratios->p50.max, 3);
  EXPECT_EQ(ratios->goodput.median, 0.5);
  EXPECT_EQ(pawl.ratios.size(), 1u);
  EXPECT_EQ(pawl.ratios_to("grpc"), nullptr);
}

TEST(BenchRowTest, TripsAndWorkRequestsOfACall) {
  BenchRow row;
  row.samples = {sample(2, 1us, 1), sample(2, 1us, 1)};
  for (SampleResult& each : row.samples) {
    each.counts.messages = 8;
    each.counts.transfers = each.counts.confirms = 2;
    each.counts.reads = 6;
    each.counts.binds = each.counts.invalidates = 2;
  }
  EXPECT_EQ(row.messages_per_call(), 4);
  EXPECT_EQ(row.round_trips_per_call(), 3);
  EXPECT_EQ(row.work_requests_per_call(), 9);
}

TEST(BenchRowTest, ARowWithoutFiguresSaysWhy) {
  BenchRow row;
  row.system = "iperf3";
  row.settings.size = 1 << 20;
  row.missing = "iperf3 is not installed";
  EXPECT_THAT(json_of(row), HasSubstr("\"missing\": \"iperf3 is not installed\""));
  EXPECT_THAT(line_of(bulk_columns(), row), HasSubstr("iperf3 is not installed\n"));
}

TEST(BenchPairs, TakenInTurnAndWhoComesFirstChanges) {
  std::vector<std::string> order;
  const auto contender = [&](const char* name) {
    Contender made;
    made.system = name;
    made.sample = [&order, name](const SampleSettings&) -> Result<SampleResult> {
      order.emplace_back(name);
      return sample(1, 1us, 1);
    };
    return made;
  };
  Contender gone = contender("gone");
  gone.missing = "not here";
  const auto rows = run_pairs({contender("a"), contender("b"), gone}, 3);
  ASSERT_TRUE(rows.ok());
  EXPECT_THAT(order, ElementsAre("a", "b", "b", "a", "a", "b"));
  EXPECT_EQ((*rows)[0].samples.size(), 3u);
  EXPECT_TRUE((*rows)[2].samples.empty());
}

TEST(BenchPairs, ARefusalIsARowAndAFailureEndsTheRun) {
  Contender refused;
  refused.sample = [](const SampleSettings&) -> Result<SampleResult> {
    return Status(Code::unimplemented, "not built yet");
  };
  EXPECT_EQ(run_pairs({refused}, 2).status().code(), Code::unimplemented);
  refused.may_be_refused = true;
  const auto rows = run_pairs({refused}, 2);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0].missing, "not built yet");
}

TEST(BenchMachineTest, LoadOfAllCores) {
  const auto ticks = CpuTicks::parse("cpu  10 1 5 100 4 2 3 7 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  ASSERT_TRUE(ticks);
  EXPECT_EQ(ticks->programs, 16u);
  EXPECT_EQ(ticks->all, 132u);
  EXPECT_FALSE(CpuTicks::parse("intr 1 2 3"));
  EXPECT_FALSE(CpuTicks::parse("cpu  1 2 3"));
}

TEST(BenchIperf, ItsJson) {
  const auto result = parse_iperf(
      R"({"end": {"sum_sent": {"seconds": 9, "bytes": 9}, "sum_received": {"start": 0,
      "seconds": 2.5, "bytes": 5000000000, "bits_per_second": 1}, "cpu_utilization_percent":
      {"host_total": 40, "host_user": 1, "remote_total": 80}}})");
  ASSERT_TRUE(result.ok()) << result.status().what();
  EXPECT_EQ(figure_of(*result, Figure::goodput_bytes_per_s), 2e9);
  EXPECT_EQ(result->client_cpu, 1s);
  EXPECT_EQ(result->server_cpu, 2s);
  EXPECT_FALSE(parse_iperf(R"({"error": "unable to connect"})").ok());
}

TEST(BenchOptionsTest, Lists) {
  EXPECT_THAT(*sizes_from("64,4K,1m", 1 << 20), ElementsAre(64u, 4096u, 1u << 20));
  for (const char* words : {"", "0", "x", "4KB", "2M", "64,64", "-1", "1,,2"}) {
    EXPECT_EQ(sizes_from(words, 1 << 20).status().code(), Code::invalid_argument) << words;
  }
  EXPECT_THAT(*counts_from("1,64", 64), ElementsAre(1u, 64u));
  EXPECT_FALSE(counts_from("65", 64).ok());
  EXPECT_THAT(*spins_from("block,spin"), ElementsAre(false, true));
  EXPECT_FALSE(spins_from("sleep").ok());
  EXPECT_FALSE(guards_from("verify,guard").ok());
  EXPECT_TRUE(against_from("none", BenchKind::echo)->empty());
  EXPECT_TRUE(against_from("raw,iperf3", BenchKind::bulk).ok());
  EXPECT_TRUE(against_from("raw,grpc", BenchKind::echo).ok());
  EXPECT_FALSE(against_from("iperf3", BenchKind::echo).ok());
}

TEST(BenchPattern, EveryByteCounts) {
  for (const std::size_t size : {1u, 7u, 8u, 9u, 64u, 4097u}) {
    std::vector<std::byte> bytes(size);
    fill_pattern(3, bytes);
    EXPECT_EQ(wrong_bytes(3, bytes, size, true), 0u);
    EXPECT_EQ(wrong_bytes(3, bytes, size, false), 0u);
    EXPECT_GT(wrong_bytes(4, bytes, size, false), 0u) << "another block";
    bytes.back() ^= std::byte{1};
    EXPECT_EQ(wrong_bytes(3, bytes, size, true), 1u);
    EXPECT_EQ(wrong_bytes(3, bytes, size, false) > 0, true) << "the last word is always seen";
    EXPECT_EQ(wrong_bytes(3, bytes, size + 1, true), size + 1) << "a wrong length";
  }
}

// ---- Clients of servers that answer with wrong bytes

SampleSettings settings_of(Shape shape, bool raw) {
  SampleSettings settings{};
  settings.system = raw ? System::raw : System::pawl;
  settings.shape = shape;
  settings.size = 64;
  settings.outstanding = 2;
  settings.calls = 10;
  settings.server_core = settings.client_core = -1;
  settings.guard = Guard::verify;
  settings.inline_off = true;
  for (auto* fabric : {&settings.server_fabric, &settings.client_fabric}) {
    std::string("tcp").copy(fabric->data(), fabric->size() - 1);
  }
  return settings;
}

class Liar final : public bench::BenchService {
 public:
  explicit Liar(Block block) : block_(std::move(block)) {}

 private:
  Task<Result<bench::EchoReply>> echo(Call&, const bench::EchoRequest&) override {
    bench::EchoReply reply;
    reply.set_data("something else");
    co_return reply;
  }
  Task<Result<bench::GetReply>> get(Call&, const bench::GetRequest&, Download& out) override {
    out.add(block_);
    co_return bench::GetReply();
  }
  Task<Result<bench::PutReply>> put(Call&, const bench::PutRequest&, Upload&) override {
    bench::PutReply reply;
    reply.set_wrong_bytes(1);
    co_return reply;
  }
  Task<Result<bench::CountReply>> count(Call&, const bench::CountRequest&) override {
    co_return bench::CountReply();
  }
  Block block_;
};

TEST(BenchClients, PawlSeesWrongBytes) {
  for (const Shape shape : {Shape::echo, Shape::download, Shape::upload}) {
    Node node;
    Result<Buffer> zeros = node.block_on(node.pool().acquire(64));
    ASSERT_TRUE(zeros.ok()) << zeros.status().what();
    std::ranges::fill(zeros->bytes(), std::byte{0});
    Liar liar((*std::move(zeros)).freeze());
    Result<Server> server = node.serve("127.0.0.1:0", liar);
    ASSERT_TRUE(server.ok()) << server.status().what();
    node.run_background();
    Result<SharedBenchBoard> board = SharedBenchBoard::create(settings_of(shape, false));
    ASSERT_TRUE(board.ok());
    (*board)->server.say(Stage::ready, server->address());
    (*board)->server_process = ::getpid();
    const Status called = call_pawl(**board);
    EXPECT_TRUE(called.ok()) << called.what();
    EXPECT_EQ((*board)->result.calls, 10u);
    // At least one of each call, those of the warm-up too.
    EXPECT_GE((*board)->result.wrong_bytes, 14u) << direction_of(shape);
  }
}

TEST(BenchClients, RawSeesWrongBytes) {
  for (const Shape shape : {Shape::echo, Shape::download}) {
    Result<RawListener> listener = RawListener::listen(0);
    ASSERT_TRUE(listener.ok());
    Result<SharedBenchBoard> board = SharedBenchBoard::create(settings_of(shape, true));
    ASSERT_TRUE(board.ok());
    (*board)->server.say(Stage::ready, listener->address());
    (*board)->server_process = ::getpid();
    std::thread liar([&] {
      Result<RawSocket> socket = listener->accept(false);
      std::vector<std::byte> request(shape == Shape::echo ? 64 : 8);
      const std::vector<std::byte> zeros(64);
      while (socket->receive(request).ok() && socket->send(zeros).ok()) {
      }
    });
    const Status called = call_raw(**board);
    EXPECT_TRUE(called.ok()) << called.what();
    liar.join();
    EXPECT_EQ((*board)->result.calls, 10u);
    EXPECT_GE((*board)->result.wrong_bytes, 14u) << direction_of(shape);
  }
}

}  // namespace
}  // namespace pawl::tools
