// SPDX-License-Identifier: Apache-2.0
// Late READs on tcp, between processes: a reader is held at each point of a transfer, by its
// fabric, by SIGSTOP or by its death, and meanwhile the owner takes the bytes back and writes their
// next use into the same memory. Whoever is alive afterwards ends its call and is handed no byte of
// another use; both go on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "kit/process.h"
#include "kit/words.h"

namespace pawl::kit {
namespace {

enum class Direction : std::uint8_t {
  download,  ///< the client reads what the server owns
  upload,    ///< the server reads what the client owns
};
enum class Means : std::uint8_t { fault, stop, kill };
/// What the owner does while the reader is held. `none`: nothing, it notices the reader's death.
/// `cancel`: the caller drops its call; where it is the reader and cannot say so, because it is
/// stopped or what it sends is held, the owner retires its Block.
enum class Act : std::uint8_t { deadline, cancel, restart, none };

constexpr std::array kPoints{Point::read_posted, Point::in_read, Point::read_done,
                             Point::confirm_sent, Point::release};
constexpr std::array<const char*, 2> kDirectionNames{"download", "upload"};
constexpr std::array<const char*, 3> kMeansNames{"fault", "stop", "kill"};
constexpr std::array<const char*, 4> kActNames{"deadline", "cancel", "restart", "none"};

constexpr std::size_t kOneRead = 48 << 10;
constexpr std::size_t kManyReads = std::size_t{1} << 20;
constexpr int kSmallSocketBytes = 8192;
constexpr int kLargeSocketBytes = 1 << 20;

struct Cell {
  Direction direction;
  Means means;
  Point point;
  Act act;

  [[nodiscard]] std::string name() const {
    return std::string(kDirectionNames[static_cast<std::size_t>(direction)]) + ", " +
           std::string(name_of(point)) + ", " + kMeansNames[static_cast<std::size_t>(means)] +
           ", " + kActNames[static_cast<std::size_t>(act)];
  }
};

bool owner_retires(const Cell& cell) {
  return cell.act == Act::cancel && cell.direction == Direction::download &&
         (cell.means == Means::stop || cell.point == Point::confirm_sent);
}

struct HandedOver {
  std::uint64_t use = 0;
  std::string code;
  std::size_t right = 0;
  std::size_t wrong = 0;
  std::size_t torn = 0;
};
HandedOver parse(const std::string& line) {
  HandedOver out;
  std::istringstream(line) >> out.use >> out.code >> out.right >> out.wrong >> out.torn;
  return out;
}

/// What both processes count of their connections.
struct Settled {
  int opened = 0;
  int lost = 0;
  int data_lost = 0;
  friend bool operator==(const Settled&, const Settled&) = default;
};

class LateRead : public ::testing::Test {
 protected:
  void use_guard(Guard guard) { guard_ = guard; }

  /// Runs a cell. `heard`: what the reader was handed, if it is alive and was waiting.
  void run(const Cell& cell);
  [[nodiscard]] const HandedOver* heard() const { return heard_ ? &*heard_ : nullptr; }

 private:
  void start_both();
  void hold_reader(const Cell& cell);
  void act(const Cell& cell);
  void reuse_while_held(const Cell& cell);
  void free_reader(const Cell& cell);
  void go_on(const Cell& cell);
  void good_call(const Cell& cell, std::uint64_t use);
  void set_socket_buffers(int bytes) {
    client_.ask("buffers " + std::to_string(bytes), "buffers_set");
    server_.ask("buffers " + std::to_string(bytes), "buffers_set");
  }
  Settled settle(Process& process);
  Process& reader(const Cell& cell) {
    return cell.direction == Direction::download ? client_ : server_;
  }
  Process& owner(const Cell& cell) {
    return cell.direction == Direction::download ? server_ : client_;
  }
  /// A process in the place of one that was killed: another incarnation, at the same port.
  void start_again(Process& process) {
    if (&process == &server_) {
      const std::string address = address_;
      server_.start("server", guard_, address);
      EXPECT_EQ(server_.address(), address);
    } else {
      client_.start("client", guard_, address_);
    }
  }

  Guard guard_ = Guard::verify;
  Process server_;
  Process client_;
  std::string address_;
  std::uint64_t next_use_ = 1;
  std::size_t bytes_ = 0;
  bool dropped_ = false;
  std::optional<HandedOver> heard_;
  Settled before_;
};

void LateRead::start_both() {
  if (!server_.running()) {
    // An address of this test alone: nobody else takes the port while its server is gone.
    const auto id = static_cast<unsigned>(::getpid());
    const std::string host =
        "127." + std::to_string(id / 250 % 250 + 1) + "." + std::to_string(id % 250 + 1) + ".1";
    server_.start("server", guard_, host + ":0");
    address_ = server_.address();
  }
  if (!client_.running()) client_.start("client", guard_, address_);
}

Settled LateRead::settle(Process& process) {
  Settled settled;
  std::istringstream(process.ask("settle", "settled")) >> settled.opened >> settled.lost >>
      settled.data_lost;
  return settled;
}

void LateRead::good_call(const Cell& cell, std::uint64_t use) {
  std::ostringstream command;
  command << (cell.direction == Direction::download ? "get " : "put ") << use << ' ' << bytes_
          << " 0";
  const HandedOver done = parse(client_.ask(command.str(), "done"));
  EXPECT_EQ(done.use, use);
  EXPECT_EQ(done.code, "ok");
  const HandedOver bytes =
      cell.direction == Direction::download ? done : parse(server_.expect("pulled"));
  EXPECT_EQ(bytes.use, use);
  EXPECT_EQ(bytes.right, bytes_);
  EXPECT_EQ(bytes.wrong, 0u);
}

void LateRead::hold_reader(const Cell& cell) {
  const bool upload = cell.direction == Direction::upload;
  const bool stops = cell.means == Means::stop;
  bytes_ = cell.point == Point::in_read ? kManyReads : kOneRead;
  good_call(cell, next_use_++);  // there is a connection, and an endpoint for READs
  settle(client_);
  before_ = settle(server_);
  if (stops && cell.point == Point::in_read) set_socket_buffers(kSmallSocketBytes);
  client_.ask("freeze", "frozen");
  server_.ask("freeze", "frozen");
  const std::string confirms = owner(cell).ask("confirms", "confirms");
  reader(cell).ask(
      "arm " + std::string(name_of(cell.point)) + (upload ? " 1" : " 0") + (stops ? " 1" : " 0"),
      "armed");
  // A Block of the owner's stays where it takes the bytes back by it.
  const bool keep = upload || owner_retires(cell);
  client_.say((upload ? "put " : "get ") + std::to_string(next_use_) + " " +
              std::to_string(bytes_) + (keep ? " 1" : " 0"));
  reader(cell).expect("held");
  if (stops) reader(cell).wait_until_stopped();
  if (cell.point == Point::release && guard_ == Guard::verify) {
    owner(cell).ask("await_confirms " + std::to_string(std::stoi(confirms) + 1), "confirmed");
  }
}

void LateRead::act(const Cell& cell) {
  dropped_ = false;
  switch (cell.act) {
    case Act::deadline:
      owner(cell).ask("advance", "advanced");
      break;
    case Act::cancel:
      if (owner_retires(cell)) {
        server_.ask("retire", "retired");
      } else {
        client_.ask("drop", "dropped");
        dropped_ = true;
      }
      break;
    case Act::restart:
      owner(cell).kill();
      start_again(owner(cell));
      break;
    case Act::none:
      reader(cell).kill();
      break;
  }
}

// The bytes that were lent are the owner's again and hold their next use, while the reader is held:
// nothing that the reader does can come before.
void LateRead::reuse_while_held(const Cell& cell) {
  if (cell.act == Act::restart) return;  // the bytes went with their process
  const std::string use = std::to_string(next_use_ + 1);
  EXPECT_EQ(owner(cell).ask("reuse " + use, "reused"), use);
  if (cell.direction == Direction::upload && !dropped_) {
    const HandedOver done = parse(client_.expect("done"));
    EXPECT_EQ(done.use, next_use_);
    EXPECT_EQ(done.code, cell.act == Act::none ? "connection_lost" : "deadline");
  }
  // A server that is held by its fabric alone may have heard of the end of the call.
  const bool upload = cell.direction == Direction::upload;
  const bool may_know = cell.act == Act::none || (upload && cell.means != Means::stop);
  if (!may_know && cell.point != Point::release) {
    EXPECT_FALSE(reader(cell).came(upload ? "pulled" : "done")) << "it was not held";
  }
}

void LateRead::free_reader(const Cell& cell) {
  heard_.reset();
  if (cell.means == Means::kill) {
    reader(cell).kill();
    start_again(reader(cell));
    return;
  }
  if (cell.means == Means::stop) reader(cell).resume();
  set_socket_buffers(kLargeSocketBytes);
  reader(cell).ask("let_go", "let_gone");
  if (cell.direction == Direction::upload) {
    heard_ = parse(server_.expect("pulled"));
  } else if (!dropped_) {
    heard_ = parse(client_.expect("done"));
  }
  if (heard_) {
    EXPECT_EQ(heard_->use, next_use_);
  }
}

// The next use of the very memory, and a use of other memory; then nothing is left.
void LateRead::go_on(const Cell& cell) {
  client_.ask("thaw", "thawed");
  server_.ask("thaw", "thawed");
  good_call(cell, next_use_ + 1);
  good_call(cell, next_use_ + 2);
  next_use_ += 3;
  settle(client_);
  const Settled after = settle(server_);
  if (cell.act != Act::restart && cell.means != Means::kill) {
    EXPECT_EQ(after, before_) << "a connection or a data endpoint was lost";
  }
}

void LateRead::run(const Cell& cell) {
  SCOPED_TRACE(cell.name());
  start_both();
  const auto failed = [] { return ::testing::Test::HasFailure(); };
  hold_reader(cell);
  if (!failed()) act(cell);
  if (!failed()) reuse_while_held(cell);
  if (!failed()) free_reader(cell);
  if (!failed()) go_on(cell);
  if (failed()) {
    server_.kill();
    client_.kill();
  }
}

std::vector<Act> acts_of(Means means) {
  std::vector<Act> acts{Act::deadline, Act::cancel, Act::restart};
  if (means == Means::kill) acts.push_back(Act::none);
  return acts;
}

// --- the cells -------------------------------------------------------------------------------

struct Column {
  Direction direction;
  Means means;
};
std::string column_name(const ::testing::TestParamInfo<Column>& info) {
  return std::string(kDirectionNames[static_cast<std::size_t>(info.param.direction)]) + "_" +
         kMeansNames[static_cast<std::size_t>(info.param.means)];
}

class LateReadCells : public LateRead, public ::testing::WithParamInterface<Column> {};

TEST_P(LateReadCells, VerifyHandsOverNoByteOfAnotherUse) {
  use_guard(Guard::verify);
  const Column& column = GetParam();
  for (const Point point : kPoints) {
    for (const Act act : acts_of(column.means)) {
      const Cell cell{column.direction, column.means, point, act};
      run(cell);
      if (HasFailure()) FAIL() << cell.name();
      if (heard() == nullptr) continue;
      SCOPED_TRACE(cell.name() + ": " + heard()->code);
      EXPECT_EQ(heard()->wrong, 0u);
      const std::vector<std::string> ends{"stale", "deadline", "connection_lost", "data_lost",
                                          "cancelled"};
      if (point == Point::release && heard()->code == "ok") {
        EXPECT_EQ(heard()->right, kOneRead);  // it was valid when the owner was asked
      } else {
        EXPECT_NE(std::find(ends.begin(), ends.end(), heard()->code), ends.end());
        EXPECT_EQ(heard()->right, 0u);
      }
      // What names the interleaving: a reader that knows of nothing is refused by the check alone.
      if (column.direction == Direction::download && act == Act::deadline &&
          point != Point::release) {
        EXPECT_EQ(heard()->code, "stale");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kit, LateReadCells,
                         ::testing::Values(Column{Direction::download, Means::fault},
                                           Column{Direction::download, Means::stop},
                                           Column{Direction::download, Means::kill},
                                           Column{Direction::upload, Means::fault},
                                           Column{Direction::upload, Means::stop},
                                           Column{Direction::upload, Means::kill}),
                         column_name);

class LateReadControl : public LateRead, public ::testing::WithParamInterface<Column> {};

// The same cells without a guard: bytes of the next use are handed over, so the kit shows what it
// is for. A caller that dropped its call is handed nothing in any case.
TEST_P(LateReadControl, NoneHandsOverBytesOfAnotherUse) {
  use_guard(Guard::none);
  const Column& column = GetParam();
  for (const Point point : {Point::read_posted, Point::in_read}) {
    for (const Act act : {Act::deadline, Act::cancel}) {
      const Cell cell{column.direction, column.means, point, act};
      const bool caller_reads = column.direction == Direction::download;
      if (act == Act::cancel && caller_reads && !owner_retires(cell)) continue;
      run(cell);
      if (HasFailure()) FAIL() << cell.name();
      SCOPED_TRACE(cell.name());
      ASSERT_NE(heard(), nullptr);
      EXPECT_EQ(heard()->code, "ok");
      EXPECT_GT(heard()->wrong, 0u);
      if (point != Point::in_read) continue;
      EXPECT_GT(heard()->right, 0u) << "it was held in the middle";
      if (column.means == Means::stop) {
        EXPECT_GT(heard()->torn, 0u) << "in the middle of a READ";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kit, LateReadControl,
                         ::testing::Values(Column{Direction::download, Means::fault},
                                           Column{Direction::download, Means::stop},
                                           Column{Direction::upload, Means::fault},
                                           Column{Direction::upload, Means::stop}),
                         column_name);

}  // namespace
}  // namespace pawl::kit
