# SPDX-License-Identifier: Apache-2.0
"""Rows by somebody who had not seen the tests: see table.py."""

# name, file, what stands there, what is put in its place, why it would hurt
OUTSIDER = [
    ("answer-of-a-dropped-pull-speaks-for-the-next",
     "src/bulk/puller.cc",
     "  if (asked.empty() || !(asked.front().lease == lease)) return false;\n",
     "  // Those that are over need no answer any more.\n"
     "  while (!asked.empty() && transfers_.find(asked.front().transfer) == nullptr) "
     "asked.pop_front();\n"
     "  if (asked.empty() || !(asked.front().lease == lease)) return false;\n",
     "Two pulls of one upload lease, the first dropped after its CONFIRM went out: the answer "
     "to it (valid, given before the owner ended the lease and overwrote the bytes) is taken "
     "for the second pull, whose READs fetched the next use's bytes after that look; it is "
     "accepted."),
    ("retry-keeps-bytes-read",
     "src/bulk/puller.cc",
     "  transfer.bytes_read = 0;\n",
     "",
     "A transfer that lost its endpoint after some grants had completed is read again from the "
     "start, but reaches bytes_read == bytes while the last READs of the second try are still "
     "outstanding or not even posted: CONFIRM goes out before the last completion (C after F), "
     "and what those READs fetch later is accepted by that answer."),
    ("abandoned-transfer-is-tried-again",
     "src/bulk/puller.cc",
     "  if (lost && transfer.listener != nullptr && transfer.tries < kTriesMax &&\n",
     "  if (lost && transfer.tries < kTriesMax &&\n",
     "Endpoint lost, the flushes still to come, then the call is dropped: when the last flush "
     "comes the dead call's transfer is submitted again, READs are posted for a call that is "
     "over, and the user's buffers, the quarantine and a cancel_ack wait for a whole second "
     "transfer."),
    ("partly-posted-reads-have-no-timeout",
     "src/bulk/puller_reads.cc",
     "  GrantRecord* const posted = endpoint.posted.front();\n"
     "  GrantRecord* const partly = endpoint.waiting.front();\n"
     "  if (partly == nullptr || partly->reads == 0) return posted;\n"
     "  return posted == nullptr || partly->posted < posted->posted ? partly : posted;\n",
     "  return endpoint.posted.front();\n",
     "A grant of more READs than the endpoint's depth (many small segments) whose first READs "
     "never complete is never posted whole and never looked at: no escalation, the endpoint "
     "does not go to ERR and the landing memory stays in quarantine for ever."),
    ("read-timeout-not-armed-again",
     "src/bulk/puller_reads.cc",
     "  if (oldest->posted + puller.options_.read_timeout > puller.poller_.now()) {\n"
     "    puller.arm_timeout(endpoint);\n"
     "    return;\n"
     "  }\n",
     "  if (oldest->posted + puller.options_.read_timeout > puller.poller_.now()) return;\n",
     "READ A (t0) completes, READ B is posted at t0 + 0.6 s while A's timer is armed; the "
     "timer finds B too young and is not armed again: if B never completes and nothing else is "
     "posted, nobody ever takes the endpoint to ERR."),
    ("pump-forgets-the-grants-of-an-ended-transfer",
     "src/bulk/puller_reads.cc",
     "flow_.on_complete(grant, false, Duration{0}, poller_.now());\n",
     "static_cast<void>(grant);  // nothing of it was posted\n",
     "The endpoint is lost between submit and pump: the first grant of a batch fails the "
     "transfer, the others of the same batch were taken already and are never completed, so "
     "the window's bytes and the flow record leak (until nothing is granted any more, or the "
     "id is submitted twice)."),
    ("flow-cancel-gives-credit-twice",
     "src/flow/static_window.cc",
     "  record->bytes = record->granted_bytes;\n"
     "  leave_lane(*record);\n",
     "  record->bytes = record->granted_bytes;\n"
     "  in_flight_bytes_ -= record->in_flight_bytes;  // nobody waits for these\n"
     "  leave_lane(*record);\n",
     "A transfer cancelled with READs in flight gives its bytes back now and again when they "
     "complete: the counter goes below zero, so every such cancel widens the NIC's window for "
     "good and the bound on bytes in flight is not kept."),
    ("release-finds-the-lease-by-its-id-alone",
     "src/bulk/lender.cc",
     "  Entry* entry = find(host, name);\n"
     "  if (entry == nullptr) {\n"
     "    if (host.release_held(name)) return true;\n",
     "  static_cast<void>(host);\n"
     "  Entry* entry = entries_.find(SlotId::unpack(name.id));\n"
     "  if (entry == nullptr) {\n"
     "    if (host.release_held(name)) return true;\n",
     "A RELEASE of another peer, or with another generation, ends a lease that it does not "
     "name: the rightful reader's check goes stale, and nothing is counted as ignored."),
    ("cancel-ack-of-one-call-settles-all",
     "src/bulk/lender.cc",
     "    if (call && held.call != *call) return false;\n",
     "    if (call && held.call == 0) return false;\n",
     "hold_until_ack, two uploads of one connection time out; the acknowledgement of the first "
     "gives back the memory of the second, whose READs still run at the peer: the next use's "
     "bytes reach it."),
    ("held-leases-leak-with-their-connection",
     "src/bulk/lender.cc",
     "void Lender::endpoints_gone(LentList& list) { give_back(list, std::nullopt); }",
     "void Lender::endpoints_gone(LentList& list) { static_cast<void>(list); }",
     "hold_until_ack and the connection is lost before the cancel_ack: the handles go but "
     "nobody settles, so the memory and the lease slots are never given back (and the pool "
     "never ends)."),
    ("end-of-a-lease-by-its-deadline-tells-nobody",
     "src/bulk/lender.cc",
     "  lender.end(entry.id, LeaseEnd::timeout, true);",
     "  lender.end(entry.id, LeaseEnd::timeout, false);",
     "A reader that takes a download's answer and then neither confirms, releases nor cancels: "
     "the lease ends at its deadline but the answered ServerCall stays known for ever; "
     "served_live grows, drains wait for the whole grace, and after 65536 the peer is refused."),
    ("a-region-s-key-opens-all-of-it",
     "src/memory/extent.cc",
     "  if (region_ != nullptr) return region_->blocks_of(range);\n",
     "  static_cast<void>(range);\n",
     "A peer that was lent one block of a Region gets a key that opens the whole Region: a "
     "READ before or behind the lent bytes is served where keys are exact, with bytes that "
     "were never lent to it."),
    ("good-bitmap-is-read-by-the-list-s-index",
     "src/rpc/client_download.cc",
     "    const std::size_t index = of_lease ? lent++ : 0;\n",
     "    const std::size_t index = lent++;\n",
     "An answer whose first part is inline, empty or an error, and a lent part is retired "
     "while it is read: the reader looks at a neighbour's bit and accepts the withdrawn "
     "segment's bytes."),
    ("lease-of-which-nothing-is-wanted-is-kept",
     "src/rpc/client_download.cc",
     "  if (pull.remote.empty()) {\n"
     "    give_back_unread();\n"
     "    return accept_parts({});\n"
     "  }\n",
     "  if (pull.remote.empty()) return accept_parts({});\n",
     "into(...).range() behind the end of every lent segment: the call is ok at once, but "
     "nobody releases and no cancel is sent, so the callee's buffer stays lent until the "
     "call's deadline plus grace."),
    ("no-landing-memory-no-release",
     "src/rpc/client_download.cc",
     "  if (!buffers.ok()) {\n"
     "    self->give_back_unread();\n"
     "    return self->end(buffers.status().with_ran(Ran::yes));\n"
     "  }\n",
     "  if (!buffers.ok()) return self->end(buffers.status().with_ran(Ran::yes));\n",
     "The answer has come, but the pool refuses landing memory (quarantine full, too_large, "
     "pool closed): the call fails without a release or cancel and the callee's lease lives on "
     "to its deadline."),
    ("lost-while-pulling-says-not-run",
     "src/rpc/client_call.cc",
     "  end(std::move(status).with_ran(request_went_out_ ? Ran::unknown : Ran::no));\n",
     "  end(std::move(status).with_ran(state_ == State::sent ? Ran::unknown : Ran::no));\n",
     "The connection ends while the call waits for landing memory or pulls: the handler has "
     "run and answered, and the caller is told ran = no, so a method that is not idempotent is "
     "retried."),
    ("a-call-dropped-while-it-pulls-sends-no-cancel",
     "src/rpc/client_call.cc",
     "  if (!going_out_ || !connection_) return;\n",
     "  if (!going_out_ || !connection_ || transfer_) return;\n",
     "The user drops a download in the middle of its READs: abandon does not release under "
     "verify, and without the cancel the callee's buffer stays lent for the rest of the "
     "deadline (30 s by default)."),
    ("a-second-response-is-believed",
     "src/rpc/client_call.h",
     "    return state_ == State::sent && attempt == attempt_;\n",
     "    return state_ != State::over && attempt == attempt_;\n",
     "A peer that answers twice, the second time while the first answer's bytes are being "
     "pulled: the landings are replaced under the running transfer, whose pull_done then "
     "accepts into the wrong list (or ends the process), and the second lease's READs go "
     "astray."),
    ("a-connected-call-still-counts-as-waiting",
     "src/rpc/lane.cc",
     "    unlist(*call);\n"
     "    call->connected(connection);\n",
     "    waiting_.remove(*call);\n"
     "    call->connected(connection);\n",
     "waiting_count_ never goes down for calls that waited for a connection and got it: after "
     "calls_max of them (over reconnects) every call of the channel is refused with "
     "resource_exhausted for ever."),
    ("inherit-of-a-used-up-deadline-is-the-default",
     "src/rpc/call.cc",
     "  options.deadline = left.count() <= 0 ? Duration(-1) : left;\n",
     "  options.deadline = std::max(left, Duration{0});\n",
     "A handler whose caller's deadline has passed calls on with inherit(): 0 means the "
     "channel's default, so the next node works for it for up to 30 s after the end of the "
     "call."),
    ("an-answer-does-not-wait-for-dropped-reads",
     "src/rpc/server_call.cc",
     "  if (reading_ != 0) {\n"
     "    // The answer gives back what was lent, so it comes after the last completion.\n",
     "  if (reading_ != 0 && cancelled_) {\n"
     "    // The answer gives back what was lent, so it comes after the last completion.\n",
     "A handler drops a pull under way and answers: the caller takes the response for the end "
     "of all READs and has its memory back at once, with hold_until_ack too, while READs of it "
     "are still running."),
    ("a-dropped-pull-counts-as-drained",
     "src/rpc/upload.cc",
     "    call_->retain();  // until the last READ completed\n"
     "    call_->connection().engine().puller().abandon(transfer, {&PullBase::on_drained, "
     "call_.get()});\n",
     "    call_->connection().engine().puller().abandon(transfer, {});\n"
     "    call_->read_over();\n",
     "CANCEL during a pull: cancel_ack goes out while the READs are still outstanding, so the "
     "caller's hold_until_ack memory is reused and the next use's bytes are read by the old "
     "call's READs."),
    ("a-cancel-after-the-answer-leaves-the-lease",
     "src/rpc/server_call.cc",
     "  if (lease_id_ != 0) {  // the owner's end: the bytes are taken back now\n"
     "    connection_->engine().lender().end(std::exchange(lease_id_, 0), "
     "memory::LeaseEnd::cancelled);\n"
     "  }\n",
     "  if (lease_id_ != 0 && state_ == State::answered) {  // its reader, or its deadline, "
     "ends it\n"
     "    acknowledge_cancel();\n"
     "    return;\n"
     "  }\n",
     "The caller times out or drops the call while it pulls: the cancel is acknowledged, but "
     "what was lent stays LENT until its deadline, so the callee's buffers are held (and a "
     "late check is still valid)."),
    ("what-an-answer-lends-has-no-deadline",
     "src/rpc/server_call.cc",
     "  terms.deadline = deadline_ + options.lease_grace;\n",
     "",
     "A reader that keeps its connection alive but never confirms, releases or cancels holds "
     "the callee's memory, and its ServerCall, until the connection ends."),
    ("served-bytes-leak-with-a-cancelled-reply",
     "src/rpc/server_call.cc",
     "  count_bytes(0);\n"
     "  --connection_->engine().stats().served_live;\n",
     "  --connection_->engine().stats().served_live;\n",
     "A reply that waits for credit when its call is cancelled is never sent and never taken "
     "off served_bytes_: after 64 MiB of such replies the connection answers everything with "
     "overloaded."),
    ("held-requests-are-not-counted",
     "src/rpc/server_call.cc",
     "  ++engine.stats().served_live;\n"
     "  count_bytes(body_.size());\n",
     "  ++engine.stats().served_live;\n",
     "The bound of 64 MiB of held requests sees replies only: a peer fills the handler queue "
     "(or slow handlers) with 1 MiB requests and the memory that they hold is not shed (4096 "
     "MiB by default)."),
    ("a-call-cancelled-in-the-queue-keeps-its-place",
     "src/rpc/server_call.cc",
     "  self->connection_->engine().dequeue_handler();\n"
     "  const Ref<ServerCall> handler = Ref<ServerCall>::adopt(self);\n"
     "  if (self->cancelled_) {\n"
     "    NodeStats& stats = self->connection_->engine().stats();\n"
     "    ++(self->cancel_reason_ == Code::deadline ? stats.served_expired : "
     "stats.served_cancelled);\n"
     "    self->answer(Status(self->over_status()));\n"
     "    return;\n"
     "  }\n"
     "  self->start_handler();\n",
     "  const Ref<ServerCall> handler = Ref<ServerCall>::adopt(self);\n"
     "  if (self->cancelled_) {\n"
     "    NodeStats& stats = self->connection_->engine().stats();\n"
     "    ++(self->cancel_reason_ == Code::deadline ? stats.served_expired : "
     "stats.served_cancelled);\n"
     "    self->answer(Status(self->over_status()));\n"
     "    return;\n"
     "  }\n"
     "  self->connection_->engine().dequeue_handler();\n"
     "  self->start_handler();\n",
     "Each request that expires or is cancelled before its handler leaks one place of the "
     "handler queue: after handler_queue_max of them every request is overloaded for ever."),
    ("a-queued-request-outlives-its-deadline",
     "src/rpc/server_call.cc",
     "  if (self->state_ == State::queued || self->state_ == State::running) {\n",
     "  if (self->state_ == State::running) {\n",
     "A request whose deadline passes while it waits for its handler is run all the same, "
     "after the caller's end, and is never told: work (and side effects) for nobody."),
    ("a-stale-inline-part-travels-all-the-same",
     "src/rpc/server_call.cc",
     "    const Status copied = parts_[i]->copy_out(0, out.first(segment.length));\n"
     "    if (copied.ok()) {\n"
     "      out = out.subspan(segment.length);\n"
     "    } else {\n"
     "      segment = {};\n"
     "      segment.code = copied.code();\n"
     "    }\n",
     "    const Status copied = parts_[i]->copy_out(0, out.first(segment.length));\n"
     "    out = out.subspan(segment.length);\n"
     "    if (!copied.ok()) {\n"
     "      segment = {};\n"
     "      segment.code = copied.code();\n"
     "    }\n",
     "A small Region part that went stale says so in its descriptor, but its room stays in the "
     "payload: the reply is longer by its bytes and every inline segment is read at the wrong "
     "place."),
    ("a-segment-pulled-alone-is-checked-by-the-first-bit",
     "src/rpc/upload.cc",
     "part, of_lease});",
     "part, of_lease * 0});",
     "pull_segment(i) with i > 0 of an upload of many segments: segment i is retired and "
     "overwritten while it is read, the bitmap says so, but the reader looks at bit 0, which "
     "is good, and accepts the next use's bytes."),
    ("what-was-pulled-unconfirmed-came-from-nowhere",
     "src/rpc/upload.cc",
     "  remote_ = std::exchange(call_->unconfirmed_pieces(), {});\n",
     "",
     "pull_unconfirmed of an upload of several segments, one is retired and overwritten, then "
     "confirm: the check is valid with that segment's bit cleared, but no piece is compared "
     "with the bitmap and the handler gets the next use's bytes."),
    ("a-guard-that-was-not-agreed-is-believed-in-an-answer",
     "src/rpc/connection_frames.cc",
     "  if (Status guard = check_guard(response.lease); !guard.ok()) return guard;\n",
     "",
     "A callee that lends under `none` though the connection negotiated verify only: the "
     "reader asks nobody after its READs, and bytes of another use reach the application."),
    ("a-call-id-is-used-twice",
     "src/rpc/connection_frames.cc",
     "  if (served_.contains(header.call)) {\n"
     '    return {Code::protocol_error, "a call id is used again while its call is under way"};\n'
     "  }\n",
     "",
     "A hostile peer reuses the id of a call under way: the second call is in no table (or "
     "takes the first out of it at its end), so cancels reach the wrong one and at the "
     "connection's end one of the two is never told and keeps the connection for ever."),
    ("a-late-data-lost-kills-the-new-endpoint",
     "src/rpc/connection_frames.cc",
     "  if (role.link && role.link->incarnation() == lost.incarnation) {\n",
     "  if (role.link) {\n",
     "Both ends see one loss and tell each other; the endpoint is opened again before the "
     "other's data_lost comes, which then takes the new one down, whose loss is told again: "
     "transfers use up their tries and fail with data_lost."),
    ("a-data-endpoint-needs-no-secret",
     "src/rpc/engine.cc",
     "  if (found == connections_.end() || found->second->secret() != hello.connection_secret ||\n"
     "      found->second->state() != Connection::State::ready) {\n",
     "  if (found == connections_.end() || found->second->state() != Connection::State::ready) {\n",
     "Anybody who guesses a connection's id (they count up from 1) attaches a data endpoint to "
     "it: the real one is closed, and the stranger's READs run in that connection's group."),
    ("a-silent-data-endpoint-is-kept-by-the-accepting-side",
     "src/rpc/data_link.cc",
     "  hello_timeout_.arm(poller, poller.now() + kHelloTimeout, "
     "&DataLink::on_hello_timeout, this);\n",
     "  if (connection_.connecting_side_) {  // the other side opens it again\n"
     "    hello_timeout_.arm(poller, poller.now() + kHelloTimeout, "
     "&DataLink::on_hello_timeout, this);\n"
     "  }\n",
     "Peers that open data endpoints and never say hello keep a message slot each for ever; "
     "with half of the 1024 slots gone no honest peer gets a data endpoint accepted any more."),
    ("needs-data-looks-at-the-other-direction",
     "src/rpc/connection_data.cc",
     "  return role == role_we_read() ? !transfers_.empty() : !lent_.empty();\n",
     "  return role == role_we_read() ? !lent_.empty() : !transfers_.empty();\n",
     "The reading endpoint of the connecting side is lost with a transfer waiting for the next "
     "one, nothing is lent the other way: the retry timer fires and opens nothing, the "
     "transfer waits until the call's deadline."),
    ("a-dead-connection-leaves-its-keys",
     "src/rpc/connection.cc",
     "  engine_.fabric().close_group({id_});\n",
     "",
     "Every connection's region keys stay in the fabric's table for the life of the process: "
     "memory grows with reconnects, and what a lost peer was told still opens the buffers' "
     "next uses."),
    ("liveness-stops-after-its-first-ping",
     "src/rpc/connection.cc",
     "  if (now - last_heard_ >= liveness_ / 3) send_frame(FrameType::ping, 0, 0, Ping{});\n"
     "  arm_liveness();\n",
     "  if (now - last_heard_ >= liveness_ / 3) {\n"
     "    send_frame(FrameType::ping, 0, 0, Ping{});\n"
     "    return;  // the answer will be heard\n"
     "  }\n"
     "  arm_liveness();\n",
     "A peer that vanishes silently is pinged once and never given up: the lane keeps the dead "
     "connection and every later call on it waits for its deadline instead of a new "
     "connection."),
    ("credit-is-due-for-both-classes-or-not-at-all",
     "src/rpc/session.cc",
     "  return call_received_ - call_told_ >= (own_.call_messages + 1) / 2 ||\n",
     "  return call_received_ - call_told_ >= (own_.call_messages + 1) / 2 &&\n",
     "One-way traffic only: 32 call messages are received, no session message is, nothing else "
     "is to be sent, so no credit ever goes back and the sender stands still."),
    ("the-last-session-credit-is-spent-on-anything",
     "src/rpc/session.cc",
     "return session_credit() > 1 || call_credit() > 0;",
     "return session_credit() > 0 || call_credit() > 0;",
     "Both ends without call credit spend their 16 session credits on confirms or cancels that "
     "cross on the way: each owes the other credits and has none to say so with; the "
     "connection stands still."),
    ("a-body-in-parts-is-as-long-as-its-sender-takes",
     "src/rpc/session.cc",
     "    if (piece.body_bytes > own_.message_bytes_max) {\n",
     "    if (piece.body_bytes > peer_.message_bytes_max) {\n",
     "The limit of the wrong side: a peer that announces message_bytes_max = 4 GiB makes this "
     "node allocate 4 GiB for a first part of a few bytes."),
    ("session-frames-are-bounded-by-number",
     "src/rpc/frame_queue.cc",
     "  if (waiting + bytes > kBytesMax) return false;\n",
     "  if (frames_ >= 65536) return false;\n",
     "A peer that pings (or confirms with bitmaps) without returning session credit makes this "
     "node hold 2^20 frames, tens to hundreds of MiB, instead of 1 MiB before it is given up."),
    ("slots-of-messages-that-could-not-be-posted-leak",
     "src/rpc/session.cc",
     "      slots_.give_back(static_cast<std::uint32_t>(request.id));\n"
     "      --sends_in_flight_;\n",
     "      --sends_in_flight_;\n",
     "A flush onto an endpoint that is in ERR (its `failed` still to come) loses up to 8 of "
     "the poller's 1024 message slots: after enough lost connections nobody can send any more."),
    ("a-starved-connection-is-forgotten",
     "src/rpc/engine.cc",
     "  if (connection.starved() && !listed) starved_.push_back(connection);\n",
     "  static_cast<void>(listed);\n",
     "All message slots are in other connections' sends: a connection with frames to send and "
     "nothing in flight itself is not marked dirty again, since the completions that free "
     "slots mark only their own; its frames (confirms, answers) wait until something else "
     "happens to it."),
    ("inline-bytes-of-the-last-segment-only",
     "src/rpc/wire.cc",
     "      inline_bytes += segment.length;\n",
     "      inline_bytes = segment.length;\n",
     "A hostile descriptor with two inline segments that together are longer than the payload "
     "passes the check: `payload - inline` goes below zero at the receiver and it reads far "
     "out of bounds."),
    ("a-ticket-is-found-by-its-id",
     "src/rpc/ticket_table.cc",
     "  if (found == entries_.end() || found->second.generation != ticket.generation ||\n"
     "      found->second.deadline <= now) {\n",
     "  if (found == entries_.end() || found->second.deadline <= now) {\n",
     "Ids count up from 1 and the incarnation stands in every handshake: a peer without a "
     "ticket makes one up and pulls blocks that were named for somebody else."),
    ("tickets-are-swept-only-when-one-is-issued",
     "src/rpc/node_core.cc",
     "  const TimePoint next = tickets_->sweep(poller(0).now());\n"
     "  if (next == TimePoint::never() || closed()) return;\n"
     "  ticket_timer_.arm(\n"
     "      poller(0), next, [](void* self) { static_cast<NodeCore*>(self)->sweep_tickets(); }, "
     "this);\n",
     "  static_cast<void>(tickets_->sweep(poller(0).now()));\n",
     "After the last ticket was issued nothing drops expired ones: the blocks that they name "
     "stay out of the pool for the life of the node."),
    ("a-landing-is-seen-only-from-its-beginning",
     "src/memory/region.cc",
     "                       [](const std::byte* at, const Range& r) { return at < r.end; });\n",
     "                       [](const std::byte* at, const Range& r) { return at <= r.begin; });\n",
     "A landing that began in an earlier block is not seen by block, reuse or another landing "
     "of its later blocks: the user is given bytes, writable, that the device still writes."),
    ("a-use-begins-for-as-many-blocks-as-the-size-says",
     "src/memory/region_core.h",
     "    uses_.advance(block_of(range.data()), block_of(range.data() + range.size() - 1));\n",
     "    const std::size_t first = block_of(range.data());\n"
     "    uses_.advance(first, first + (range.size() - 1) / block_bytes_);\n",
     "A landing that starts in the middle of a block and ends in the next: the next block's "
     "earlier Blocks do not become stale, and one is lent (and read by a peer) while READs "
     "land in it."),
    ("reuse-of-one-block-looks-at-its-own-list",
     "src/memory/region_core.h",
     "    fn(wide_);\n"
     "    const std::size_t first = block_of(range.data());\n"
     "    const std::size_t last = block_of(range.data() + range.size() - 1);\n",
     "    const std::size_t first = block_of(range.data());\n"
     "    const std::size_t last = block_of(range.data() + range.size() - 1);\n"
     "    if (last != first) fn(wide_);\n",
     "reuse(i) of one block does not end a lease of a Block over several blocks: the check "
     "says valid after the writer wrote, and the reader's application gets the next use's "
     "bytes."),
    ("reuse-does-not-wait-for-unsettled-leases",
     "src/memory/region.cc",
     "      if (held == Held::no) return range;\n",
     "      if (held != Held::live) return range;\n",
     "hold_until_ack and a lent region block: after the call's timeout reuse hands the block "
     "out before the peer acknowledged the cancel, and its late READs carry the next use's "
     "bytes to it."),
    ("a-copy-is-not-looked-at-again",
     "src/memory/region.cc",
     "  return uses_.same_after_copy(first, last, use) ? Status() : stale();\n",
     "  return {};\n",
     "Another thread reuses and writes the block while copy_out (or the copy into an answer) "
     "runs: the copy is a mix of two uses and is said to be good."),
    ("a-closed-region-asks-before-its-landing-is-gone",
     "src/memory/region.cc",
     "    landings_.erase(at);\n"
     "    due = quiet();\n",
     "    due = quiet();\n"
     "    landings_.erase(at);\n",
     "Region::close while a READ lands: at the end of the last landing the region is not yet "
     "quiet, and nobody looks again, so the close never completes and the memory is never "
     "deregistered."),
    ("landing-in-a-region-ignores-the-quarantine",
     "src/memory/landing.cc",
     "  if (Status refused = extent->core().admit_transfer(); !refused.ok()) return refused;\n",
     "",
     "With quarantine_bytes_max reached transfers into regions go on: a peer whose READs hang "
     "adds quarantine without bound."),
    ("a-refused-lease-that-settles-later-keeps-its-slot",
     "src/memory/lease.cc",
     "    holds_.fetch_sub(settles_later_ ? 2 : 1, std::memory_order_relaxed);\n",
     "    holds_.fetch_sub(1, std::memory_order_relaxed);  // who would finish\n",
     "Each refused one-segment lease under hold_until_ack (a stale region block, no room to "
     "lend) leaks a lease slot: after leases_max of them nothing can be lent, and the pool "
     "never ends."),
    ("charged-memory-stays-uncharged-too",
     "src/memory/pool_core.cc",
     "  charged_bytes_ += bytes;\n"
     "  uncharged_bytes_ -= bytes;\n",
     "  charged_bytes_ += bytes;\n",
     "Each landed buffer that is lent onwards stays counted as landing for ever: soon no "
     "landing request is within its reserve, and all of them wait behind those who wait to "
     "lend, who cannot use that memory."),
    ("landing-buffers-go-to-the-thread-s-cache",
     "src/memory/pool_core.cc",
     "  if (order < ThreadCache::kOrdersCached && extent.charged_) {\n",
     "  if (order < ThreadCache::kOrdersCached) {\n",
     "Released landing memory is handed out by try_acquire as ordinary memory without being "
     "charged: buffers to be written and lent eat the landing reserve, up to 4 MiB a thread "
     "and round."),
    ("a-release-passes-by-who-waits",
     "src/memory/thread_cache.cc",
     "  if (closed_ || waiters.load(std::memory_order_relaxed) != 0) return false;\n",
     "  static_cast<void>(waiters);\n"
     "  if (closed_) return false;\n",
     "What comes free while somebody waits goes to the releasing thread's cache; serving looks "
     "at the lists only, so the waiter sleeps until its deadline beside free memory."),
    ("try-acquire-overtakes-without-end",
     "src/memory/pool_core.cc",
     "  const bool within_reserve = within_reserve_locked(want);\n"
     "  if (!may_pass_locked(want, ahead_locked())) return Shortage::behind_waiters;\n"
     "  const Shortage shortage = allocate_locked(want, got);\n"
     "  if (shortage == Shortage::none) overtake_locked(want, nullptr, within_reserve);\n",
     "  if (!may_pass_locked(want, ahead_locked())) return Shortage::behind_waiters;\n"
     "  const Shortage shortage = allocate_locked(want, got);\n",
     "Small try_acquires that pass a large waiter are not counted against it: a steady stream "
     "of them keeps it waiting for ever instead of for at most its own size."),
    ("ended-for-room-and-left-in-the-cache",
     "src/memory/pool_core.cc",
     "  collect_caches();  // the memory may have gone to one\n",
     "",
     "A lease ended for room gives its buffer to this thread's cache, where the next attempt "
     "does not look: up to 64 leases are ended for one request, which is refused all the same."),
    ("one-refused-growth-is-the-last",
     "src/memory/pool_growth.cc",
     "  growing_ = false;\n"
     "  const TimePoint now = clock_->now();\n",
     "  growing_ = !done.ok();  // it is tried again\n"
     "  const TimePoint now = clock_->now();\n",
     "After one refusal by the system or the devices the pool believes for ever that it is "
     "growing: it never grows again, and who waits is told nothing before its deadline."),
    ("room-ends-the-youngest-leases",
     "src/memory/lease_table.cc",
     "  const auto younger = [](const Candidate& a, const Candidate& b) { return a.lent_at > "
     "b.lent_at; };\n",
     "  const auto younger = [](const Candidate& a, const Candidate& b) { return a.lent_at < "
     "b.lent_at; };\n",
     "Under pressure the leases that have just begun to be read are ended, and the old ones of "
     "readers that are gone keep their memory: every new transfer goes stale."),
    ("leases-that-settle-later-are-ended-for-room",
     "src/memory/lease_table.cc",
     "      !settles_later && std::all_of(segments.begin(), segments.end(), [](const Block& "
     "block) {\n",
     "      std::all_of(segments.begin(), segments.end(), [](const Block& block) {\n",
     "Ending a hold_until_ack lease gives no memory back before the peer's acknowledgement: up "
     "to 64 uploads are cut off for one request that gets nothing from it, and counted as "
     "room."),
    ("the-bounds-of-a-read-wrap-around",
     "src/fabric/tcp/memory_table.cc",
     "  if (address > key.length || length > key.length - address) return false;\n",
     "  if (address + length > key.length) return false;\n",
     "A hostile READ at address 2^64 - n wraps to a small sum and is served with the n bytes "
     "in front of the lent buffer: other buffers, or the process's memory."),
    ("a-key-opens-to-every-connection",
     "src/fabric/tcp/memory_table.cc",
     "  if (key.window ? key.endpoint != endpoint : key.group != group) return false;\n",
     "  static_cast<void>(group);\n"
     "  if (key.window && key.endpoint != endpoint) return false;\n",
     "A key that one peer passes on (or that leaks) opens the buffer over any other connection "
     "of the node."),
    ("deregistration-does-not-wait-for-the-sendmsg",
     "src/fabric/tcp/memory_table.cc",
     "  registrations_.erase(handle.value);\n"
     "  wait_for_sampling(lock);\n",
     "  registrations_.erase(handle.value);\n",
     "Region::close deregisters on the helper thread while the poller's sendmsg copies from "
     "the region: the close completes, the user unmaps or refills the memory, and the READ is "
     "served with it, or faults."),
    ("one-read-more-than-was-announced",
     "src/fabric/tcp/endpoint_receive.cc",
     "  if (service_.tail - service_.head >= service_.depth) {\n",
     "  if (service_.tail - service_.head > service_.depth) {\n",
     "A peer that posts depth + 1 READs (128 is a power of two, the ring is full) is not "
     "refused, and its last request overwrites the one that is being served: the rest of that "
     "READ comes from another address."),
    ("an-acknowledgement-of-what-was-never-sent",
     "src/fabric/tcp/endpoint_receive.cc",
     "  if (count < sent_acknowledged_ || count > sent_) {\n",
     "  if (count < sent_acknowledged_) {\n",
     "A peer acknowledges messages ahead: sends complete with success though the socket never "
     "had them, so their slots are reused while they still wait to go out; with a huge count "
     "the poller never comes back."),
    ("ids-of-erased-things-come-again",
     "src/fabric/socket/slot_table.h",
     "    slot.generation = (slot.generation % 0x7fffffff) + 1;\n",
     "",
     "An endpoint, registration, window or listener gets the id of one that was just erased: a "
     "close, event or deregistration that was meant for the old one hits the new one (a late "
     "close ends another connection)."),
]
