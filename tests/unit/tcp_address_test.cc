// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

#include "fabric/socket/address.h"

namespace pawl::fabric::tcp {
namespace {

std::string round_trip(std::string_view text) {
  const Result<Target> target = parse_target(text);
  if (!target.ok()) return "error: " + std::string(target.status().what());
  if (target->addresses.empty()) return "name " + target->host + " " + std::to_string(target->port);
  std::string out;
  for (const SocketAddress& address : target->addresses) {
    out += (out.empty() ? "" : " ") + format_address(address);
  }
  return out;
}

TEST(TcpAddress, WhatIsReadIsWrittenAgain) {
  for (const char* text :
       {"127.0.0.1:7000", "0.0.0.0:0", "[::1]:7000", "[::]:65535", "[fe80::1%lo]:80",
        "unix:/run/pawl.sock", "unix:relative", "unix:@abstract"}) {
    EXPECT_EQ(round_trip(text), text);
  }
  EXPECT_EQ(round_trip("[0:0::1]:1"), "[::1]:1");
  EXPECT_EQ(round_trip("[fe80::1%1]:80"), "[fe80::1%lo]:80");
  EXPECT_EQ(round_trip("[::ffff:10.0.0.1]:80"), "10.0.0.1:80");
}

TEST(TcpAddress, NamesAreLeftToTheResolver) {
  EXPECT_EQ(round_trip("localhost:7000"), "127.0.0.1:7000 [::1]:7000");
  EXPECT_EQ(round_trip("store-1.example.org:443"), "name store-1.example.org 443");
  EXPECT_EQ(round_trip("under_score:1"), "name under_score 1");
}

TEST(TcpAddress, NonsenseIsRefusedByASentenceThatShowsIt) {
  for (const std::string& text : {std::string(),
                                  std::string("127.0.0.1"),
                                  std::string("127.0.0.1:"),
                                  std::string("127.0.0.1:65536"),
                                  std::string("127.0.0.1:-1"),
                                  std::string("host: 80"),
                                  std::string(":80"),
                                  std::string("::1:80"),
                                  std::string("[::1]80"),
                                  std::string("[::1]"),
                                  std::string("[::1"),
                                  std::string("[127.0.0.1]:80"),
                                  std::string("[fe80::1]:80"),
                                  std::string("[fe80::1%nosuchif]:1"),
                                  std::string("unix:"),
                                  std::string("unix:@"),
                                  std::string("unix:/").append(108, 'x'),
                                  std::string(254, 'a').append(":1"),
                                  std::string("ho st:1"),
                                  std::string("http://host:80/"),
                                  std::string("tcp://host:80"),
                                  std::string("h\0st:1", 6)}) {
    const Result<Target> target = parse_target(text);
    ASSERT_FALSE(target.ok()) << text;
    EXPECT_EQ(target.status().code(), Code::invalid_argument);
    EXPECT_NE(target.status().what().find(text.substr(0, 100)), std::string_view::npos);
  }
}

TEST(TcpAddress, UnixPathsHave107Bytes) {
  const std::string path = "/" + std::string(106, 'x');
  EXPECT_EQ(round_trip("unix:" + path), "unix:" + path);
  EXPECT_EQ(unix_path(parse_target("unix:" + path)->addresses[0]), path);
  EXPECT_EQ(unix_path(parse_target("unix:@name")->addresses[0]), "");
}

TEST(TcpAddress, AWildcardBecomesAnAddressThatCanBeReached) {
  for (const char* text : {"0.0.0.0:7000", "[::]:7000"}) {
    const std::string reached = format_address(reachable_address(parse_target(text)->addresses[0]));
    EXPECT_NE(reached, text);
    EXPECT_TRUE(reached.ends_with(":7000")) << reached;
  }
  EXPECT_EQ(format_address(reachable_address(parse_target("10.1.2.3:4")->addresses[0])),
            "10.1.2.3:4");
}

}  // namespace
}  // namespace pawl::fabric::tcp
