// SPDX-License-Identifier: Apache-2.0
// When `pawl demo` fails, on rows that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/demo_verdict.h"

namespace pawl::tools {
namespace {

using ::testing::HasSubstr;

/// A row that lacks nothing.
Row row_of(Guard guard) {
  Row row;
  row.guard = guard;
  row.server_fabric = row.client_fabric = "tcp";
  row.calls = 1000;
  row.ok = 900;
  row.timed_out = 100;
  row.late_reads = 300;
  row.late_reads_reused = kReusedReadsMin;
  row.wrong_bytes = guard == Guard::none ? 1 : 0;
  row.wrong_transfers = row.wrong_bytes;
  row.connections_lost = guard == Guard::disconnect ? 1 : 0;
  row.failed = guard == Guard::disconnect ? 57 : 0;
  row.seconds = 5;
  return row;
}

std::vector<Row> good_rows() {
  return {row_of(Guard::none), row_of(Guard::disconnect), row_of(Guard::verify)};
}

/// The sentence of the failure that one change of one good row makes.
template <class Change>
std::string sentence_after(Guard guard, Change change) {
  std::vector<Row> rows = good_rows();
  for (Row& row : rows) {
    if (row.guard == guard) change(row);
  }
  const Verdict verdict = judge(rows);
  EXPECT_FALSE(verdict.passed) << verdict.sentence;
  return verdict.sentence;
}

TEST(DemoVerdict, RowsThatLackNothingPassAlsoAlone) {
  const Verdict all = judge(good_rows());
  EXPECT_TRUE(all.passed) << all.sentence;
  EXPECT_EQ(all.sentence.find("passed: "), 0u) << all.sentence;
  EXPECT_THAT(all.sentence, HasSubstr("`none` accepted 1 B of wrong bytes in 1 transfers"));
  EXPECT_THAT(all.sentence, HasSubstr("`disconnect` accepted no wrong byte, lost 1 connections, "
                                      "and 57 of its 1,000 calls failed; "));
  EXPECT_THAT(all.sentence, HasSubstr("`verify` accepted no wrong byte, though 100 late READs hit "
                                      "reused buffers."));
  for (const Guard guard : {Guard::none, Guard::disconnect, Guard::verify}) {
    EXPECT_TRUE(judge({row_of(guard)}).passed) << guard_name(guard);
  }
}

TEST(DemoVerdict, OneWrongByteUnderVerifyIsABrokenPromise) {
  const std::string sentence = sentence_after(Guard::verify, [](Row& row) {
    row.wrong_bytes = 1;
    row.wrong_transfers = 1;
  });
  EXPECT_EQ(sentence,
            "FAILED: `verify` accepted 1 wrong bytes in 1 transfers: its promise is broken.");
}

TEST(DemoVerdict, ABrokenPromiseIsSaidBeforeARunThatProvedNothing) {
  std::vector<Row> rows = good_rows();
  rows[0].ok = 0;
  rows[2].wrong_bytes = 1;
  EXPECT_THAT(judge(rows).sentence, HasSubstr("its promise is broken"));
}

TEST(DemoVerdict, NoWrongByteWithoutAGuardProvesNothing) {
  const std::string sentence = sentence_after(Guard::none, [](Row& row) { row.wrong_bytes = 0; });
  EXPECT_THAT(sentence, HasSubstr("proved nothing"));
  EXPECT_THAT(sentence, HasSubstr("0 wrong bytes were accepted"));
  EXPECT_THAT(sentence, HasSubstr("more --seconds"));
}

TEST(DemoVerdict, FewerThanAHundredLateReadsOfReusedBuffersProveNothing) {
  for (const Guard guard : {Guard::none, Guard::verify}) {
    const std::string sentence =
        sentence_after(guard, [](Row& row) { row.late_reads_reused = 99; });
    EXPECT_THAT(sentence, HasSubstr("proved nothing"));
    EXPECT_THAT(sentence, HasSubstr("99 late READs hit reused buffers"));
    EXPECT_THAT(sentence, HasSubstr("at least 100 are needed"));
    EXPECT_THAT(sentence, HasSubstr("more files of similar size, or smaller ones"));
  }
}

TEST(DemoVerdict, ARowWithoutACallThatWasOkProvesNothing) {
  for (const Guard guard : {Guard::none, Guard::disconnect, Guard::verify}) {
    const std::string sentence = sentence_after(guard, [](Row& row) { row.ok = 0; });
    EXPECT_THAT(sentence, HasSubstr("proved nothing"));
    EXPECT_THAT(sentence, HasSubstr("of 1,000 calls under `" + std::string(guard_name(guard)) +
                                    "` none was ok"));
    EXPECT_THAT(sentence, HasSubstr("--deadline-ms"));
  }
}

TEST(DemoVerdict, DisconnectThatLostNoConnectionProvesNothing) {
  const auto change = [](Row& row) { row.connections_lost = 0; };
  EXPECT_THAT(sentence_after(Guard::disconnect, change),
              HasSubstr("proved nothing: `disconnect` lost no connection"));
}

TEST(DemoVerdict, NoRowsProveNothing) { EXPECT_FALSE(judge({}).passed); }

TEST(DemoVerdict, TheJsonOfAFailureKeepsTheRowsBefore) {
  const std::string json = to_json({row_of(Guard::none)}, {false, "FAILED: \"it\" broke\n."}, 7);
  EXPECT_EQ(json.find(R"({"seed": 7, "passed": false, "sentence": "FAILED: \"it\" broke\u000a.", )"
                      R"("rows": [{"guard": "none", "fabric": "tcp", "server_fabric": "tcp", )"
                      R"("client_fabric": "tcp", "calls": 1000, "ok": 900, )"),
            0u)
      << json;
  EXPECT_EQ(to_json({}, {false, "x"}, 1),
            "{\"seed\": 1, \"passed\": false, \"sentence\": \"x\", \"rows\": []}\n");
}

}  // namespace
}  // namespace pawl::tools
