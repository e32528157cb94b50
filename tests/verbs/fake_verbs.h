// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/verbs/calls.h"
#include "fabric/verbs/discovery.h"

namespace pawl::fabric::verbs {

struct FakeGid {
  Gid gid{};
  std::uint32_t type = IBV_GID_TYPE_ROCE_V2;
};

struct FakePort {
  ibv_port_attr attributes{};
  std::vector<FakeGid> gids;
};

/// A device as a driver would describe it.
struct FakeDevice {
  std::string name;
  ibv_device_attr attributes{};
  std::vector<FakePort> ports;
  bool windows = true;
  std::uint32_t inline_max = 256;
  ibv_device handle{};
};

/// A queue pair, and everything that was asked of it.
struct FakeQp {
  ibv_qp qp{};
  ibv_qp_cap cap{};
  ibv_qp_state state = IBV_QPS_RESET;
  ibv_qp_attr init{}, rtr{}, rts{};
  std::vector<ibv_send_wr> sends;
  std::vector<ibv_recv_wr> receives;
  std::vector<std::uint32_t> local_keys;  ///< of the first segment of each send
  bool alive = true;
};

/// Devices that do nothing by themselves: the test says what completes, what fails and what the
/// device reports. One exists at a time, behind the table `calls()`.
class FakeVerbs {
 public:
  FakeVerbs();
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  static const Calls& calls();

  /// One active Ethernet port with a RoCE v2 address; change it as needed.
  FakeDevice& add_device(const std::string& name, const Gid& gid);

  /// Calls by their name without "ibv_" that fail with this errno until it is taken out.
  std::map<std::string, int> failing;
  /// How often each was called with success.
  std::map<std::string, int> called;

  std::list<FakeDevice> devices;
  std::list<FakeQp> qps;
  std::vector<unsigned> access;        ///< of each reg_mr
  std::vector<const ibv_mr*> regions;  ///< the same; those that were deregistered are gone
  std::size_t objects = 0;  ///< contexts, domains, regions, windows, queues: all that exist

  /// The queue pair that was made last, or the n-th before it.
  FakeQp& qp(std::size_t before_last = 0);
  /// A completion in the queue of a queue pair, destroyed or not.
  void complete(const FakeQp& qp, std::uint64_t wr_id, ibv_wc_status status,
                std::uint32_t bytes = 0);
  /// Everything that is posted, flushed, in order.
  void flush(FakeQp& qp);
  void report(ibv_event_type type, FakeQp* qp = nullptr);

  struct Context {
    ibv_context context{};
    std::deque<ibv_async_event> events;
    UniqueFd async;
  };
  struct Cq {
    ibv_cq cq{};
    std::deque<ibv_wc> entries;
    int size = 0;
  };
  std::list<Context> contexts;
  std::list<Cq> cqs;
  std::uint32_t next_number = 0x11;
};

inline Gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

}  // namespace pawl::fabric::verbs
