// SPDX-License-Identifier: Apache-2.0
#include "support/mixed_load.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/task_group.h"

namespace pawl::testing {

namespace {

constexpr Method kEcho = make_method("test.Mixed/Echo");
constexpr Method kNote = make_method("test.Mixed/Note", BulkDirection::none, false, true);
constexpr Method kGet = make_method("test.Mixed/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Mixed/Put", BulkDirection::upload);
constexpr Method kBack = make_method("test.Mixed/Back");
constexpr Method kTicket = make_method("test.Mixed/Ticket");
constexpr Duration kTicketLife = std::chrono::milliseconds(100);
constexpr std::size_t kInlineBytes = 1000;
constexpr std::size_t kLongEchoBytes = 20'000;  // several messages

// Eight bytes at a time say whose they are and where they belong.
std::uint64_t word(std::uint64_t tag, std::size_t i) { return tag * 0x9e3779b97f4a7c15ULL + i; }
void fill(std::span<std::byte> bytes, std::uint64_t tag) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t value = word(tag, i);
    std::memcpy(bytes.data() + i, &value, std::min<std::size_t>(8, bytes.size() - i));
  }
}
bool holds(std::span<const std::byte> bytes, std::uint64_t tag, std::size_t from = 0) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t value = word(tag, from + i);
    if (std::memcmp(bytes.data() + i, &value, std::min<std::size_t>(8, bytes.size() - i)) != 0) {
      return false;
    }
  }
  return true;
}

template <class T>
Payload payload_of(const T& request) {
  return Payload(std::as_bytes(std::span(&request, 1)));
}

}  // namespace

std::uint64_t LoadTally::failures() const {
  std::uint64_t sum = 0;
  for (const auto& count : failed) sum += count;
  return sum;
}

std::string LoadTally::to_string() const {
  std::string text = std::to_string(calls) + " calls: " + std::to_string(ok) + " ok, " +
                     std::to_string(dropped) + " dropped, " + std::to_string(late_tickets) +
                     " tickets too late";
  for (std::size_t i = 0; i < failed.size(); ++i) {
    if (failed[i] == 0) continue;
    text += ", ";
    text += code_name(static_cast<Code>(i));
    text += " " + std::to_string(failed[i]);
  }
  return text;
}

// --- the service -----------------------------------------------------------------------------

void MixedLoad::serve(FunctionService& service) {
  const auto echoed = [](Call&, std::span<const std::byte> request, Upload&,
                         Download&) -> Task<Result<Payload>> { co_return Payload(request); };
  service.add(kEcho, echoed);
  service.add(kNote, echoed);
  service.add(kGet, [this](Call& call, std::span<const std::byte> request, Upload&, Download& out) {
    return get(call, request, out);
  });
  service.add(kBack, [this](Call& call, std::span<const std::byte> request, Upload&, Download&) {
    return back(call, request);
  });
  service.add(kTicket, [this](Call& call, std::span<const std::byte> request, Upload&, Download&) {
    return ticket(call, request);
  });
  service.add(kPut, [this](Call& call, std::span<const std::byte> request, Upload& in, Download&) {
    return put(call, request, in);
  });
}

Task<Result<Payload>> MixedLoad::get(Call& call, std::span<const std::byte> payload,
                                     Download& out) {
  Request request;
  std::memcpy(&request, payload.data(), sizeof request);
  auto buffer = co_await ok(call.pool().acquire(request.bytes, call.remaining()));
  fill(buffer.bytes(), request.tag);
  out.add(std::move(buffer).freeze());
  co_return Payload();
}

// At once, or in two halves with one check.
Task<Result<Payload>> MixedLoad::put(Call& call, std::span<const std::byte> payload, Upload& in) {
  Request request;
  std::memcpy(&request, payload.data(), sizeof request);
  std::vector<Buffer> parts;
  if (request.tag % 2 == 0) {
    parts.push_back(co_await ok(in.pull(call.pool())));
  } else {
    (void)co_await ok(in.pull_unconfirmed(call.pool()));
    parts = co_await ok(in.confirm());
  }
  const bool whole = parts.size() == 1 && parts[0].size() == request.bytes &&
                     holds(std::as_const(parts[0]).bytes(), request.tag);
  if (whole) co_return Payload();
  ++served_wrong_;
  co_return Status(Code::corrupt, "these bytes are of another use");
}

Task<Result<Payload>> MixedLoad::back(Call& call, std::span<const std::byte> payload) {
  Request request;
  std::memcpy(&request, payload.data(), sizeof request);
  const Channel caller = call.caller();
  auto echoing = caller.call(kEcho, payload_of(request), call.inherit());
  auto echoed = co_await ok(std::move(echoing));
  auto getting = caller.call(kGet, payload_of(request), into(call.pool()), call.inherit());
  auto got = co_await ok(std::move(getting));
  const Result<Block> part = got.part();
  if (!part.ok()) co_return part.status();
  if (part->size() == request.bytes && holds(part->bytes(), request.tag)) co_return Payload();
  ++served_wrong_;
  co_return Status(Code::corrupt, "these bytes are of another use");
}

// The request: what the bytes are to be, and where this node listens.
Task<Result<Payload>> MixedLoad::ticket(Call& call, std::span<const std::byte> payload) {
  Request request;
  std::memcpy(&request, payload.data(), sizeof request);
  const std::span<const std::byte> listen = payload.subspan(sizeof request);
  auto buffer = co_await ok(call.pool().acquire(request.bytes, call.remaining()));
  fill(buffer.bytes(), request.tag);
  std::vector<Block> blocks;
  blocks.push_back(std::move(buffer).freeze());
  const std::string_view address(reinterpret_cast<const char*>(listen.data()), listen.size());
  Result<Ticket> ticket = call.node().issue_ticket(std::move(blocks), address, kTicketLife);
  if (!ticket.ok()) co_return ticket.status();
  co_return Payload::of(ticket->bytes());
}

// --- the callers -----------------------------------------------------------------------------

CallOptions MixedLoad::call_options() const {
  CallOptions options;
  options.deadline = options_.deadline;
  return options;
}

const std::vector<MixedLoad::Form> MixedLoad::kPlainForms{
    Form::echo,     Form::get,       Form::put,       Form::long_echo,
    Form::get_into, Form::small_put, Form::small_get, Form::note};
const std::vector<MixedLoad::Form> MixedLoad::kAllForms{
    Form::echo,      Form::get,       Form::put,  Form::long_echo, Form::get_into,
    Form::small_put, Form::small_get, Form::note, Form::back,      Form::ticket};

Task<void> MixedLoad::run(Node& node, Channel channel, std::size_t calls, std::size_t width) {
  TaskGroup group;
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t share = calls / width + (i < calls % width ? 1 : 0);
    (void)group.spawn(work(node, channel, share, i + 1));
  }
  (void)co_await group.join();
}

Task<void> MixedLoad::work(Node& node, Channel channel, std::size_t calls, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < calls && !stopped_; ++i) {
    ++tally_.calls;
    const std::uint64_t tag = next_tag_++;
    auto call = one(node, channel, forms_[(i + seed) % forms_.size()], tag);
    if (!random.chance(options_.drop)) {
      count(co_await std::move(call));
      continue;
    }
    const Duration after(static_cast<std::int64_t>(
        random.below(static_cast<std::uint64_t>(options_.drop_after_max.count()))));
    auto dropped = with_deadline(std::move(call), after);
    const Status status = co_await std::move(dropped);
    if (status.code() == Code::deadline) {
      ++tally_.dropped;
    } else {
      count(status);
    }
  }
}

void MixedLoad::count(const Status& status) {
  if (status.ok()) {
    ++tally_.ok;
  } else {
    ++tally_.failed[static_cast<std::size_t>(status.code())];
    if (status.ran() != Ran::no) ++tally_.maybe_ran;
  }
}

Task<Status> MixedLoad::one(Node& node, Channel channel, Form form, std::uint64_t tag) {
  Pool& pool = node.pool();
  const std::size_t bytes = options_.bytes_max - tag % 100;
  const std::size_t small = kInlineBytes + tag % 100;
  switch (form) {
    case Form::echo:
      co_return co_await echo(channel, 8 + tag % 50, tag);
    case Form::long_echo:
      co_return co_await echo(channel, kLongEchoBytes + tag % 100, tag);
    case Form::note:
      co_return co_await note(channel, tag);
    case Form::get:
      co_return co_await get_from(pool, channel, bytes, tag, false);
    case Form::get_into:
      co_return co_await get_from(pool, channel, bytes, tag, true);
    case Form::small_get:
      co_return co_await get_from(pool, channel, small, tag, false);
    case Form::put:
      co_return co_await put_to(pool, channel, bytes, tag);
    case Form::small_put:
      co_return co_await put_to(pool, channel, small, tag);
    case Form::back:
      co_return co_await call_back(channel, tag);
    case Form::ticket:
      co_return co_await pull_by_ticket(node, channel, bytes, tag);
  }
  co_return Status();
}

Task<Status> MixedLoad::echo(Channel channel, std::size_t bytes, std::uint64_t tag) {
  Payload request(bytes);
  fill(request.bytes(), tag);
  auto operation = channel.call(kEcho, std::move(request), call_options());
  auto outcome = co_await std::move(operation);
  if (!outcome.ok()) co_return outcome.status();
  const std::span<const std::byte> reply = std::as_const(*outcome).bytes();
  if (reply.size() != bytes || !holds(reply, tag)) ++tally_.wrong;
  co_return Status();
}

Task<Status> MixedLoad::note(Channel channel, std::uint64_t tag) {
  auto operation = channel.send(kNote, payload_of(tag), call_options());
  co_return co_await std::move(operation);
}

Task<Status> MixedLoad::get_from(Pool& pool, Channel channel, std::size_t bytes, std::uint64_t tag,
                                 bool into_own) {
  Into target = into(pool);
  if (into_own) {
    auto buffer = co_await pool.acquire(bytes, options_.deadline);
    if (!buffer.ok()) co_return buffer.status();
    target = into(*std::move(buffer));
  }
  Request request;
  request.tag = tag;
  request.bytes = bytes;
  auto operation = channel.call(kGet, payload_of(request), std::move(target), call_options());
  auto outcome = co_await std::move(operation);
  if (!outcome.ok()) co_return outcome.status();
  const Result<Block> part = outcome->part();
  if (!part.ok()) co_return part.status();
  if (part->size() != bytes || !holds(part->bytes(), tag)) ++tally_.wrong;
  co_return Status();
}

Task<Status> MixedLoad::call_back(Channel channel, std::uint64_t tag) {
  Request request;
  request.tag = tag;
  request.bytes = kInlineBytes * 8;
  auto operation = channel.call(kBack, payload_of(request), call_options());
  auto outcome = co_await std::move(operation);
  co_return outcome.status();
}

Task<Status> MixedLoad::pull_by_ticket(Node& node, Channel channel, std::size_t bytes,
                                       std::uint64_t tag) {
  Request request;
  request.tag = tag;
  request.bytes = bytes;
  const std::string_view target = channel.target();
  Payload payload(sizeof request + target.size());
  std::memcpy(payload.bytes().data(), &request, sizeof request);
  std::memcpy(payload.bytes().data() + sizeof request, target.data(), target.size());
  auto asking = channel.call(kTicket, std::move(payload), call_options());
  auto answer = co_await std::move(asking);
  if (!answer.ok()) co_return answer.status();
  const Ticket ticket{std::string(answer->text())};
  auto pulling = node.pull(ticket, into(node.pool()), call_options());
  auto outcome = co_await std::move(pulling);
  if (outcome.status().code() == Code::stale) {  // it was over before the pull, or its node was
    ++tally_.late_tickets;
    co_return Status();
  }
  if (!outcome.ok()) co_return outcome.status();
  const Result<Block> part = outcome->part();
  if (!part.ok()) co_return part.status();
  if (part->size() != bytes || !holds(part->bytes(), tag)) ++tally_.wrong;
  co_return Status();
}

Task<Status> MixedLoad::put_to(Pool& pool, Channel channel, std::size_t bytes, std::uint64_t tag) {
  auto buffer = co_await pool.acquire(bytes, options_.deadline);
  if (!buffer.ok()) co_return buffer.status();
  fill(buffer->bytes(), tag);
  Request request;
  request.tag = tag;
  request.bytes = bytes;
  auto operation =
      channel.call(kPut, payload_of(request), lend((*std::move(buffer)).freeze()), call_options());
  auto outcome = co_await std::move(operation);
  co_return outcome.status();
}

}  // namespace pawl::testing
