// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/socket/socket.h"
#include "fabric/tcp/core.h"
#include "fabric/tcp/wire.h"
#include "fabric/tcp/work_queue.h"

namespace pawl::fabric::tcp {

enum class State : std::uint8_t {
  resolving,   ///< connecting end: the name is being looked up
  connecting,  ///< connecting end: the socket is being connected
  greeting,    ///< connecting end: waits for the answer to its greeting
  incoming,    ///< accepting end: waits for the peer's greeting
  asked,       ///< accepting end: the application has been asked
  ready,
  error,    ///< everything was flushed; close() is awaited
  closing,  ///< waits until its completions were taken and, in short, for the peer to read why
};

/// The connecting end's list of addresses and how far it is through it.
struct ConnectAttempt {
  std::string text;  ///< the address as it was given
  std::vector<SocketAddress> addresses;
  std::size_t next = 0;        ///< the address that is tried next
  TimePoint deadline;          ///< of all
  TimePoint address_deadline;  ///< of the one being tried
  std::string last_error;
  std::vector<std::byte> hello;
};

/// A greeting as it comes in.
struct GreetingInput {
  std::array<std::byte, kGreetingBytes> head{};
  std::size_t have = 0;  ///< bytes of head, then of hello
  bool whole_head = false;
  Greeting greeting;
  std::vector<std::byte> hello;
};

/// One socket with the queues of a queue pair. All functions are the poller's. Its files follow
/// what happens to it: endpoint.cc (life and end), endpoint_post.cc, endpoint_send.cc,
/// endpoint_receive.cc, read_service.cc, greeting.cc.
class Endpoint {
 public:
  Endpoint(Core& core, EndpointId id) : core_(core), id_(id) {}

  [[nodiscard]] EndpointId id() const { return id_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }

  // --- connection (greeting.cc; driven by connector.cc and listener.cc) ----------------------

  void set_peer(std::string peer) { peer_ = std::move(peer); }
  void set_options(const EndpointOptions& options);
  void set_state(State state) { state_ = state; }
  void set_socket(UniqueFd fd) {
    fd_ = std::move(fd);
    readable_ = writable_ = hangup_ = false;
  }
  void set_deadline(TimePoint deadline);
  std::unique_ptr<ConnectAttempt> attempt;        ///< until connected
  std::unique_ptr<GreetingInput> greeting_input;  ///< until it is answered
  ListenerId listener;                            ///< accepting end

  enum class GreetingProgress : std::uint8_t { incomplete, complete, failed };
  GreetingProgress read_greeting(Code& code, std::string& why);
  void send_greeting(GreetingKind kind, std::span<const std::byte> hello);
  /// Both greetings are known: work may flow once the application took `connected`.
  void become_ready(const Limits& peer, std::vector<std::byte> hello);
  void announced();
  /// No connection came about: flushes, then gives `connect_failed`.
  void connect_failed(Status why, std::vector<std::byte> hello = {});
  /// The application refused: flushes and gives no event.
  void reject(std::span<const std::byte> hello);

  // --- work ----------------------------------------------------------------------------------

  std::size_t post(std::span<const WorkRequest> chain, Status& why);
  [[nodiscard]] std::uint64_t receives_posted() const { return receive_.tail - receive_.head; }
  std::size_t take_completions(std::span<Completion> out);

  // --- what happens to the socket --------------------------------------------------------------

  void on_events(bool readable, bool writable, bool hangup);
  /// Sends what there is, with one system call.
  void send_turn();
  /// Receives within the budgets of the turn.
  void receive_turn();
  /// In ERR: sends the last words and waits for the peer's end of the stream.
  void linger_turn();
  [[nodiscard]] bool wants_to_send() const;
  [[nodiscard]] bool wants_to_receive() const;
  /// Only an acknowledgement waits: it may wait for a frame to travel with.
  [[nodiscard]] bool only_acknowledges() const;
  [[nodiscard]] bool sent_this_turn() const { return send_turn_ == core_.turn; }
  [[nodiscard]] bool writable() const { return writable_; }
  [[nodiscard]] bool hangup() const { return hangup_; }
  void wake();           ///< asks for a turn
  void complete_soon();  ///< asks to be asked for completions
  [[nodiscard]] bool has_completions() const {
    return receive_.head != receive_.filled || send_.head != send_.emit;
  }

  /// In which of the core's lists it is.
  struct Listed {
    bool active = false, completing = false, timed = false;
  } listed;

  // --- end (endpoint.cc) -----------------------------------------------------------------------

  void set_error();
  void close();
  void close_silently();  ///< nobody has heard of it: without an event
  void stop_lingering();
  /// True once: its completions were taken and nothing else holds it; `last` is its last event.
  bool finished(Event& last, bool& has_last);

 private:
  struct Input {
    enum class Phase : std::uint8_t { header, waiting, body, trailer, fault };
    Phase phase = Phase::header;
    std::uint32_t have = 0;
    std::uint32_t need = kFrameBytes;
    std::uint32_t body_left = 0;
    FrameHeader frame;
    Scatter* target = nullptr;
    std::array<std::byte, kReadRequestBytes> bytes;  // of the header or the trailer
    std::string fault_text;
  };

  // endpoint.cc
  void fail(Status why);  // ERR by itself, without last words
  void fail_with_words(Status why, std::span<const std::byte> words);
  void violation(const std::string& what);  // the peer broke the wire protocol
  void fault(FaultCode code, const std::string& text, Status why);
  void connection_ended(int error);
  void fail_oldest(CompletionStatus status, int native);
  void flush();
  void drop_socket();
  [[nodiscard]] Status status(Code code, const std::string& text, int native = 0) const;

  // endpoint_post.cc
  Status check(const WorkRequest& request) const;
  void post_receive(const WorkRequest& request);
  Status post_send(const WorkRequest& request);
  bool take_segments(std::span<const LocalSegment> local, Scatter& out) const;

  // endpoint_send.cc
  void execute_requests();
  bool execute(SendSlot& slot, std::uint64_t sequence);
  void fail_slot(SendSlot& slot, CompletionStatus status, const char* what);
  void skip_transmitted();
  void plan_requests(Plan& plan);
  void plan_acknowledgement(Plan& plan);
  void gather(Plan& plan, OutFrame& frame, const std::byte* lent, const MemoryKind* kind);
  void gather_memory(Plan& plan, const std::byte* from, std::size_t bytes, const MemoryKind* kind);
  void settle_plan(Plan& plan, std::size_t taken);
  void frame_sent(const OutFrame& frame);
  bool send_words();
  std::vector<std::byte> rest_of_current();

  // read_service.cc
  bool resume_current(Plan& plan, MemoryTable::Sampling* sampling);
  bool plan_pieces(Plan& plan, MemoryTable::Sampling& sampling);
  void refuse_read();

  // endpoint_receive.cc
  bool receive_some(std::size_t& budget);
  std::size_t consume(const std::byte* data, std::size_t size);
  void header_complete();
  void begin_message();
  void body_complete();
  void on_acknowledgement(std::uint64_t count);
  void on_read_request();
  void on_piece();
  void on_trailer();
  void on_fault();
  std::size_t direct_vectors(std::span<iovec> out, std::size_t& count) const;

  Core& core_;
  const EndpointId id_;
  State state_ = State::incoming;
  bool announced_ = false;  // the application took `connected`
  bool readable_ = false;   // edge-triggered: what epoll said and no call has disproved
  bool writable_ = false;
  bool hangup_ = false;  // the stream has an end: read up to it
  bool output_broken_ = false;
  bool stalled_ = false;  // the next request waits for READs (fence or depth)
  bool lingering_ = false;
  bool has_last_ = false;
  bool has_current_ = false;

  UniqueFd fd_;
  std::string peer_;
  EndpointOptions options_;
  Limits peer_limits_;
  TimePoint deadline_ = TimePoint::never();
  Event last_;

  SendQueue send_;
  ReceiveQueue receive_;
  ReadService service_;
  ReadsOut reads_;
  OutFrame current_;
  std::vector<std::byte> words_;  // a greeting or the last words, before any frame
  std::size_t words_sent_ = 0;

  Input input_;
  std::vector<std::byte> stash_;  // received behind a message that has no receive
  std::size_t stash_at_ = 0;
  std::uint64_t received_ = 0;      // messages of the peer in receives
  std::uint64_t acknowledged_ = 0;  // of these, as the peer knows
  std::uint64_t sent_ = 0;          // messages that the socket took
  std::uint64_t sent_acknowledged_ = 0;
  std::uint64_t send_turn_ = 0;  // the turn of the last sendmsg
};

}  // namespace pawl::fabric::tcp
