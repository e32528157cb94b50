// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/list.h"
#include "base/slot_map.h"
#include "bulk/descriptor.h"
#include "fabric/fabric.h"
#include "flow/controller.h"
#include "memory/landing.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/log.h"
#include "pawl/poller.h"
#include "pawl/stats.h"
#include "pawl/timer.h"

namespace pawl::bulk {

using flow::TransferId;
using memory::Landing;

class Puller;
class PullHost;

/// A run of READs that flow control granted, from the first post to the last completion.
struct GrantRecord : ListNode<> {
  flow::Grant grant;
  SlotId id;
  std::uint64_t next = 0;   ///< offset of the next byte to ask for
  std::uint32_t reads = 0;  ///< posted and not complete
  bool stopped = false;     ///< nothing more of it is posted
  bool failed = false;
  bool draining = false;  ///< its endpoint is being torn down
  TimePoint granted;
  TimePoint posted;  ///< its last READ
  struct DataEndpoint* endpoint = nullptr;
};

/// An endpoint on which one end of a connection posts READs. The connection owns it and keeps it
/// until the fabric said `closed`.
struct DataEndpoint : ListNode<struct GrantedTag> {
  DataEndpoint(PullHost& pull_host, Puller& owner, fabric::EndpointId endpoint)
      : host(pull_host), puller(owner), id(endpoint) {}

  PullHost& host;
  Puller& puller;
  fabric::EndpointId id;
  std::uint32_t reads_max = 1;  ///< posted at the same time: READ depth - 1, at least 1
  std::uint32_t reads = 0;      ///< posted and not complete
  bool usable = false;          ///< connected, hello seen, not in ERR
  TimePoint delivered;          ///< when a READ over it last completed well
  List<GrantRecord> waiting;    ///< have READs to post, in order
  List<GrantRecord> posted;     ///< all READs posted, some not complete; oldest first
  Timer timeout;                ///< of the oldest READ; once it is torn down, of the last
};

/// The transfers of one connection.
class TransferList;

/// The connection over which something is pulled, as the puller sees it. Poller thread.
class PullHost {
 public:
  /// The endpoint to post READs on; nullptr: it is being opened, and the puller will be told.
  virtual DataEndpoint* reading_endpoint() = 0;
  virtual TransferList& transfers() = 0;
  [[nodiscard]] virtual flow::PeerId flow_peer() const = 0;
  virtual void send_confirm(const LeaseName& lease, bool release, std::uint64_t call,
                            std::uint16_t attempt) = 0;
  virtual void send_release(const LeaseName& lease, std::uint64_t call, std::uint16_t attempt) = 0;
  [[nodiscard]] virtual const std::string& peer_address() const = 0;
  /// A READ failed, or did not complete within read_timeout: the endpoint is in ERR, or goes there,
  /// and is not given out again. Calls endpoint_failed.
  virtual void endpoint_lost(DataEndpoint& endpoint, const Status& why) = 0;
  /// Why there is no endpoint to post READs on; ok while there is, or the first is being opened.
  [[nodiscard]] virtual Status reading_trouble() const = 0;

 protected:
  ~PullHost() = default;
};

/// Bytes of the peer, as its descriptor named them; one after the other they are what is pulled.
struct RemotePiece {
  std::uint64_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::size_t segment = 0;  ///< of the lease
};

struct PullSpec {
  PullHost* host = nullptr;
  LeaseName lease;
  Guard guard = Guard::verify;
  detail::FrameVector<RemotePiece> remote;
  memory::Landings landing;  ///< of the same length in all
  /// With window keys: the only endpoint on which they open anything.
  fabric::EndpointId endpoint;
  /// The check also ends the lease: this is the only transfer of it.
  bool release = false;
  /// READ without the check: pull_done says ok with nothing accepted yet; see `confirm`.
  bool hold_check = false;
  TimePoint deadline = TimePoint::never();
  Priority priority = Priority::interactive;
  std::uint32_t tenant = 0;
  std::uint64_t call = 0;
  std::uint16_t attempt = 0;
};

struct PullResult {
  Status status;
  /// The landing memory, in no READ's reach any more. With an ok status the check was valid (or is
  /// not wanted by the guard) and the bytes may be accepted, except of segments that are not
  /// `segment_good`; else they must be discarded.
  memory::Landings landing;
  detail::FrameVector<std::byte> good;  ///< bitmap over the segments of the lease; empty = all
  /// The owner was told that the reader is done: by the check, or by RELEASE.
  bool released = false;
  Duration read{0};
  Duration confirm{0};

  /// Segment i of the lease was still lent when the owner looked.
  [[nodiscard]] bool segment_good(std::size_t i) const {
    return good.empty() ||
           (i / 8 < good.size() &&
            (good[i / 8] & (std::byte{1} << static_cast<int>(i % 8))) != std::byte{0});
  }
};

class PullListener {
 public:
  /// Once for each transfer that was not abandoned; the id means nothing any more.
  virtual void pull_done(TransferId transfer, PullResult result) = 0;

 protected:
  ~PullListener() = default;
};

/// Told when the last READ of an abandoned transfer has completed. May be empty.
struct Drained {
  void (*fn)(void* context, memory::Landings landing) = nullptr;
  void* context = nullptr;
};

/// The reader's side of every transfer of one poller: asks flow control when bytes may move, posts
/// READs, waits for their completions, and then, and only then, has the owner confirm. The record
/// of a transfer owns the landing memory until the last completion, whatever became of the call.
/// Poller thread.
class Puller {
 public:
  struct Options {
    Duration read_timeout = std::chrono::seconds(1);
    /// An endpoint that is being torn down and still has READs after this long is an alarm.
    Duration quarantine_timeout = std::chrono::seconds(3);
    std::size_t transfers_max = 4096;
    std::size_t grants_max = 4096;
    std::uint32_t first_generation = 1;
  };
  Puller(Poller& poller, fabric::Fabric& fabric, std::size_t device, flow::Controller& flow,
         NodeStats& stats, Logger& log, const Options& options);
  ~Puller();

  /// Starts a transfer. On an error `spec.landing` is untouched and nothing was started.
  Result<TransferId> start(PullSpec& spec, PullListener& listener);

  /// For a transfer with hold_check that said ok: the check, for `pull_done` a second time. The
  /// landing memory comes back for it. pull_done may be called before this returns.
  Result<TransferId> confirm(PullSpec& spec, PullListener& listener);

  /// The call is over: posts nothing more, tells the listener nothing, discards the bytes. The
  /// landing memory stays here, in quarantine, until the last READ completed. Why it is in
  /// quarantine now; none if `drained` was called already.
  QuarantineReason abandon(TransferId transfer, Drained drained);

  /// How far it is, for who gives it up: "0 of 1048576 bytes were read".
  [[nodiscard]] std::string progress(TransferId transfer) const;

  void endpoint_ready(PullHost& host);
  /// A place of its send queue came free that was not a READ's.
  void endpoint_has_room(DataEndpoint& endpoint) { post_waiting(endpoint); }
  /// In ERR: its READs are being flushed; transfers try again over the next one, once.
  void endpoint_failed(DataEndpoint& endpoint);
  /// The connection is over: every transfer of it ends with `why` once its READs completed.
  void host_closed(PullHost& host, const Status& why);

  /// The fabric was destroyed, every host closed: what READs were outstanding are over.
  void device_gone();

  void on_read(const fabric::Completion& completion);
  /// CONFIRM_ANSWER from the peer. False if nothing waits for it (its call is over).
  bool on_confirm_answer(PullHost& host, const LeaseName& lease, bool valid,
                         std::span<const std::byte> good);

  /// Posts what flow control grants now. Called in every turn. True if something was posted.
  bool pump();
  [[nodiscard]] TimePoint next_timer() const { return flow_.next_timer(); }
  [[nodiscard]] std::size_t live() const { return transfers_.size(); }

  static constexpr std::uint32_t kTriesMax = 2;  ///< endpoints over which one transfer is tried

 private:
  friend class TransferList;
  enum class State : std::uint8_t { opening, reading, confirming, ending };
  struct Transfer;

  Status submit(Transfer& transfer);
  DataEndpoint* endpoint_of(const Transfer& transfer);
  Transfer& transfer_of(const GrantRecord& record);
  detail::FrameVector<SlotId> transfers_of(PullHost& host);
  void show_quarantine(Transfer& transfer);
  void begin_drain(GrantRecord& record);
  void stop_posting(Transfer& transfer);
  void stop_record(GrantRecord& record);
  bool accept(const flow::Grant& grant);
  void stop_late(DataEndpoint& endpoint);
  bool post_chain(DataEndpoint& endpoint);
  void build_read(const Transfer& transfer, GrantRecord& record, fabric::WorkRequest& request,
                  std::span<fabric::LocalSegment> segments, std::uint64_t from,
                  std::uint64_t& bytes) const;
  void post_waiting(DataEndpoint& endpoint);
  void record_over(GrantRecord& record);
  void reads_over(Transfer& transfer);
  void fail(Transfer& transfer, Status why);
  void end(Transfer& transfer, Status status, detail::FrameVector<std::byte> good);
  void reads_hang(DataEndpoint& endpoint, GrantRecord& record, const char* how);
  static GrantRecord* oldest_outstanding(DataEndpoint& endpoint);
  void arm_timeout(DataEndpoint& endpoint);
  static void on_timeout(void* endpoint);
  static void on_undrained(void* endpoint);

  Poller& poller_;
  fabric::Fabric& fabric_;
  const std::size_t device_;
  flow::Controller& flow_;
  NodeStats& stats_;
  Logger& log_;
  const Options options_;
  SlotMap<Transfer> transfers_;
  SlotMap<GrantRecord> records_;
  std::array<flow::Grant, 32> grants_;      // of one call, kept since making it costs
  List<DataEndpoint, GrantedTag> granted_;  // got grants in this turn
};

struct Puller::Transfer : ListNode<> {
  Transfer(PullSpec from, PullListener* to) : spec(std::move(from)), listener(to) {}

  PullSpec spec;
  PullListener* listener;  ///< nullptr: abandoned
  Drained drained;
  SlotId id;
  State state = State::opening;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_read = 0;
  std::uint32_t records = 0;   ///< grants taken and not over
  std::uint32_t draining = 0;  ///< those of endpoints that are being torn down
  std::uint32_t tries = 0;
  /// Endpoints that were given up because its READs hung, and over which no READ at all came
  /// meanwhile. The handshake of the last one passed, so what is small does.
  std::uint32_t silent = 0;
  bool released = false;
  Status failure;
  TimePoint started;
  TimePoint read_done;
};

class TransferList {
 public:
  [[nodiscard]] bool empty() const { return transfers_.empty(); }
  /// CONFIRMs that the peer has not answered, also those of transfers that are over.
  [[nodiscard]] std::size_t unanswered() const { return asked_.size(); }

 private:
  friend class Puller;
  /// A CONFIRM that was sent and not answered. Answers come in the order of the CONFIRMs, and each
  /// speaks for the transfer that asked, also when that one is over: another transfer of the same
  /// lease may have fetched bytes after the owner looked.
  struct Asked {
    LeaseName lease;
    SlotId transfer;
  };
  List<Puller::Transfer> transfers_;
  detail::FrameDeque<Asked> asked_;
};

}  // namespace pawl::bulk
