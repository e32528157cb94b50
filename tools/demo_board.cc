// SPDX-License-Identifier: Apache-2.0
#include "demo_board.h"

#include <algorithm>
#include <utility>

namespace pawl::tools {

void ProcessBoard::say(Stage stage_now, std::string_view words) {
  const std::size_t bytes = std::min(words.size(), text.size() - 1);
  std::copy_n(words.begin(), bytes, text.begin());
  text[bytes] = '\0';
  stage.store(stage_now, std::memory_order_release);
}

std::string ProcessBoard::words() const {
  return {text.data(),
          static_cast<std::size_t>(std::find(text.begin(), text.end() - 1, '\0') - text.begin())};
}

SharedBoard::SharedBoard(SharedMemory memory)
    : memory_(std::move(memory)), board_(reinterpret_cast<Board*>(memory_.bytes().data())) {}

Result<SharedBoard> SharedBoard::create(const RowSettings& settings) {
  Result<SharedMemory> memory = SharedMemory::create("pawl-board", sizeof(Board));
  if (!memory.ok()) return memory.status();
  SharedBoard board(*std::move(memory));
  board->settings = settings;  // the rest is zero: valid counters, Stage::starting
  return board;
}

Result<SharedBoard> SharedBoard::attach(int fd) {
  Result<SharedMemory> memory = SharedMemory::attach(fd);
  if (!memory.ok()) return memory.status();
  if (memory->bytes().size() < sizeof(Board)) {
    return Status(Code::invalid_argument, "not the descriptor of a board");
  }
  return SharedBoard(*std::move(memory));
}

}  // namespace pawl::tools
