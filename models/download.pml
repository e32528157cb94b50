// SPDX-License-Identifier: Apache-2.0
/* Download under guard `verify`: PEERS callers pull from one callee, CALLS calls each.
   A use's number is its call's number plus one. */

#ifndef PEERS
#define PEERS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef BUFS
#define BUFS 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef ENDPOINT_LOSSES
#define ENDPOINT_LOSSES 0        /* of data endpoints */
#endif
#ifndef LOSSES
#define LOSSES 0                 /* of connections */
#endif
#ifndef RESTARTS
#define RESTARTS 0               /* of the callee's process; they count as losses */
#endif
#define PARTS 2
#define USES (PEERS * CALLS)
#define PEER(c) ((c) / CALLS)
#ifndef CALLS_1
#define CALLS_1 CALLS            /* of the second caller */
#endif
#define CALLS_OF(p) (p == 0 -> CALLS : CALLS_1)
#ifdef ONE_CONNECTION
#define HOST(p) 0                /* two callers at a time over one connection */
#else
#define HOST(p) (p)
#endif
#define TRIES_MAX 2

#include "owner.pml"

mtype = { REQUEST, RESPONSE, CONFIRM, CONFIRM_ANSWER, RELEASE, CANCEL };
/* kind, call, slot, generation, epoch or validity or buffer */
chan to_callee[PEERS] = [4 * CALLS] of { mtype, byte, byte, byte, byte };
chan to_caller[PEERS] = [2 * CALLS] of { mtype, byte, byte, byte, byte };

/* --- connections --- */

byte epoch[PEERS];               /* of the connection in use; it changes with each loss */
byte losses[PEERS];
byte endpoint_losses;
byte restarts;
bool callee_told[PEERS] = true;  /* the callee's Connection::fail of what was lost has run */
bool caller_told[PEERS] = true;
byte call_epoch[USES];
/* The frames of a connection that is lost go nowhere (Connection::send). */
#define CONNECTED(c) (call_epoch[c] == epoch[PEER(c)])
inline frame_to_callee(c, kind, s, g, x) {
  if
  :: CONNECTED(c) -> to_callee[PEER(c)]!kind, c, s, g, x
  :: else
  fi
}
inline frame_to_caller(c, kind, s, g, x) {
  if
  :: CONNECTED(c) -> to_caller[PEER(c)]!kind, c, s, g, x
  :: else
  fi
}

/* --- the callee: ServerCall, Lender --- */

mtype = { S_NONE, S_QUEUED, S_RUNNING, S_ANSWERED, S_OVER };
mtype served[USES] = S_NONE;
bool cancelled[USES];
byte handler_buf[USES] = NONE;
byte call_slot[USES] = NONE;     /* ServerCall::lease_id_ */

/* --- the caller: ClientCall, Puller::Transfer, Landing, and the READ in the device --- */

mtype = { C_IDLE, C_SENT, C_LANDING, C_PULLING, C_OVER };
mtype client[USES] = C_IDLE;
mtype = { T_NONE, T_READING, T_CONFIRMING, T_ENDING };
mtype transfer[USES] = T_NONE;
byte lease_slot[USES];           /* the lease's name, and where its bytes are */
byte lease_gen[USES];
byte lease_epoch[USES];
byte remote_buf[USES];
byte tries[USES];

byte landing[PEERS * PARTS];     /* one landing buffer a caller */
byte landing_of[PEERS] = NONE;   /* the transfer that owns it; NONE: free */

bool posted[USES];               /* a READ that is not complete */
bool flushing[USES];             /* its endpoint is in ERR: its completion will be an error */
byte fetched[USES];
byte wire[USES * PARTS];
#ifdef MUTANT_EARLY_CONFIRM
bool answered[USES];
#endif
#ifdef MUTANT_RETRY_BEFORE_COMPLETION
bool old_read[USES];             /* the READ of the first try goes on beside the second's */
byte old_wire[USES];
#endif

/* === the callee ============================================================================= */

/* The entry of a lease that is over leaves the Lender, and its call with it. */
inline forget(s) {
  call_slot[entry_call[s]] = NONE;
  if
  :: served[entry_call[s]] == S_ANSWERED -> served[entry_call[s]] = S_OVER
  :: else
  fi;
  entry_call[s] = NONE; entry_gen[s] = 0; entry_epoch[s] = 0
}

/* Lender::over on the poller, as one step of it. */
inline over(s) {
  end_word(s, entry_gen[s], won);
  if
  :: won -> give_back(s)
  :: else
  fi;
  won = false;
  forget(s)
}

/* Lender::find: the name is good only over the connection that the lease was made for. */
#ifdef MUTANT_GENERATION_IGNORED
#define SAME_GENERATION(s, g) true
#define VALID(s, g) (word[s] % 2 == 1)
#else
#define SAME_GENERATION(s, g) (entry_gen[s] == g)
#define VALID(s, g) (word[s] == g)
#endif
#ifdef MUTANT_EPOCH_IGNORED
#define SAME_HOST(s, e) true
#else
#define SAME_HOST(s, e) (e == epoch[p] && entry_epoch[s] == e)
#endif
#define FOUND(s, g, e) \
  (entry_call[s] != NONE && HOST(PEER(entry_call[s])) == HOST(p) && SAME_HOST(s, e) && SAME_GENERATION(s, g))

/* Connection::on_frame of the callee's connection with caller p. */
proctype Callee(byte p) {
  byte c, s, g, e;
  bool won, valid;
end:
  do
  :: d_step { to_callee[p]?REQUEST(c, s, g, e) ->
       served[c] = S_QUEUED;
       c = 0; s = 0; g = 0; e = 0 }
  /* Connection::on_confirm, Lender::confirm */
  :: d_step { to_callee[p]?CONFIRM(c, s, g, e) ->
       valid = FOUND(s, g, e) && VALID(s, g);     /* F */
       if
       :: FOUND(s, g, e) -> over(s)               /* release = 1 */
       :: else
       fi;
       frame_to_caller(c, CONFIRM_ANSWER, s, g, valid);
       valid = false; c = 0; s = 0; g = 0; e = 0 }
  :: d_step { to_callee[p]?RELEASE(c, s, g, e) ->
       if
       :: FOUND(s, g, e) -> over(s)
       :: else
       fi;
       c = 0; s = 0; g = 0; e = 0 }
  /* ServerCall::on_cancel */
  :: d_step { to_callee[p]?CANCEL(c, s, g, e) ->
       s = call_slot[c];
       if
       :: s != NONE -> over(s)
       :: s == NONE && served[c] != S_OVER -> cancelled[c] = true
       :: else
       fi;
       c = 0; s = 0; g = 0; e = 0 }
  od
}

/* A handler of the callee, and the answer that it gives: ServerCall::start_handler, lend_parts,
   frame_sent. It writes one part when it has the buffer, the other when it answers: W. */
inline begin_handler(c, b) {
  refs[b] = 1;
  handler_buf[c] = b;
  content[b * PARTS] = c + 1;
  served[c] = S_RUNNING
}
proctype Handler(byte c) {
  byte b, s;
end:
  do
  :: d_step { served[c] == S_QUEUED && !cancelled[c] && refs[0] == 0 -> begin_handler(c, 0) }
#if BUFS > 1
  :: d_step { served[c] == S_QUEUED && !cancelled[c] && refs[1] == 0 -> begin_handler(c, 1) }
#endif
  :: d_step { served[c] == S_QUEUED && cancelled[c] -> served[c] = S_OVER; cancelled[c] = false }
  :: d_step { served[c] == S_RUNNING && cancelled[c] ->
       refs[handler_buf[c]]--;
       handler_buf[c] = NONE; served[c] = S_OVER; cancelled[c] = false }
  :: d_step { served[c] == S_RUNNING && !cancelled[c] && (SLOT_FREE(0) || SLOT_FREE(SLOTS - 1)) ->
       b = handler_buf[c];
       handler_buf[c] = NONE;
       content[b * PARTS + 1] = c + 1;
       s = (SLOT_FREE(0) -> 0 : SLOTS - 1);
       lend(s, c, call_epoch[c], b);
       call_slot[c] = s;
       served[c] = S_ANSWERED;
       frame_to_caller(c, RESPONSE, s, word[s], b);
       b = 0; s = 0 }
  od
}

/* What ends a lease without the reader: its deadline (Lender::on_deadline), or the pool that needs
   room (LeaseTable::end_oldest, another thread, which leaves the entry). */
proctype Ends(byte s) {
  bool won;
  byte g;
end:
  do
  :: d_step { word[s] % 2 == 1 -> g = word[s]; END_FIRST(s, g, won) };
     if
     :: d_step { won -> END_SECOND(s, g, won); won = false; g = 0 }
     :: d_step { won && entry_call[s] != NONE && entry_gen[s] == g ->
          END_SECOND(s, g, won); forget(s); won = false; g = 0 }
     fi
  od
}

/* === the callers ============================================================================ */

/* The end of a transfer: its landing memory goes back. */
inline landing_free(c) {
  if
  :: landing_of[PEER(c)] == c ->
    landing[PEER(c) * PARTS] = 0;
    landing[PEER(c) * PARTS + 1] = 0;
    landing_of[PEER(c)] = NONE
  :: else
  fi;
  transfer[c] = T_NONE; lease_slot[c] = 0; lease_gen[c] = 0; lease_epoch[c] = 0;
  remote_buf[c] = 0; tries[c] = 0
}

/* Landing::accept: what the application gets is of its own use, all of it. */
inline accept(c) {
  assert(landing_of[PEER(c)] == c);
  assert(landing[PEER(c) * PARTS] == c + 1);
  assert(landing[PEER(c) * PARTS + 1] == c + 1);
  client[c] = C_OVER;
  landing_free(c)
}

/* The device writes what it fetched. */
inline land(c) {
  assert(landing_of[PEER(c)] == c);         /* no landing memory in other hands */
  landing[PEER(c) * PARTS] = wire[c * PARTS];
  landing[PEER(c) * PARTS + 1] = wire[c * PARTS + 1]
}
inline read_over(c) {
  posted[c] = false; flushing[c] = false; fetched[c] = 0;
  wire[c * PARTS] = 0; wire[c * PARTS + 1] = 0
}

/* Puller::abandon. */
inline abandon(c) {
  if
  :: transfer[c] == T_READING ->
    transfer[c] = T_ENDING;
#ifdef MUTANT_LANDING_AT_TIMEOUT
    landing_free(c)
#endif
  :: transfer[c] == T_CONFIRMING -> landing_free(c)
  :: else
  fi
}

/* ClientCall::land, Puller::start. */
inline start_pull(c) {
  landing_of[PEER(c)] = c;
  client[c] = C_PULLING;
  transfer[c] = T_READING;
  tries[c] = 1;
#ifdef MUTANT_EARLY_CONFIRM
  frame_to_callee(c, CONFIRM, lease_slot[c], lease_gen[c], lease_epoch[c]);
#endif
  posted[c] = true
}

/* Connection::on_frame of caller p's connection. */
proctype Caller(byte p) {
  byte c, s, g, x;
end:
  do
  /* Connection::on_response, ClientCall::place_parts */
  :: d_step { to_caller[p]?RESPONSE(c, s, g, x) ->
       if
       :: client[c] == C_SENT ->
         client[c] = C_LANDING;
         lease_slot[c] = s; lease_gen[c] = g; lease_epoch[c] = call_epoch[c]; remote_buf[c] = x;
         if
         :: landing_of[p] == NONE -> start_pull(c)
         :: else                                  /* it waits: Pool::acquire_landing */
         fi
       :: else -> frame_to_callee(c, RELEASE, s, g, call_epoch[c])
       fi;
       c = 0; s = 0; g = 0; x = 0 }
  /* Puller::on_confirm_answer */
  :: d_step { to_caller[p]?CONFIRM_ANSWER(c, s, g, x) ->
       if
#ifdef MUTANT_EARLY_CONFIRM
       :: transfer[c] == T_READING && x -> answered[c] = true
#endif
       :: transfer[c] == T_CONFIRMING && lease_slot[c] == s && lease_gen[c] == g ->
         if
         :: x -> accept(c)
         :: else -> client[c] = C_OVER; landing_free(c)     /* stale */
         fi
       :: else
       fi;
       c = 0; s = 0; g = 0; x = 0 }
  od
}

/* The application's side of a call; one call after the other, or with CONCURRENT any at a time. */
#ifdef CONCURRENT
#define MAY_START(c) true
#else
#define MAY_START(c) (c == PEER(c) * CALLS || client[c - 1] == C_OVER)
#endif
proctype Call(byte c) {
end:
  do
  /* ClientCall::start … frame_sent */
  :: d_step { client[c] == C_IDLE && c < PEER(c) * CALLS + CALLS_OF(PEER(c)) &&
              caller_told[PEER(c)] && MAY_START(c) ->
       call_epoch[c] = epoch[PEER(c)];
       client[c] = C_SENT;
       to_callee[PEER(c)]!REQUEST, c, 0, 0, 0 }
  /* ClientCall::on_deadline, cancel */
  :: d_step { client[c] != C_IDLE && client[c] != C_OVER ->
       frame_to_callee(c, CANCEL, 0, 0, 0);
       client[c] = C_OVER;
       abandon(c) }
  :: d_step { client[c] == C_LANDING && landing_of[PEER(c)] == NONE -> start_pull(c) }
  od
}

/* The READ of a call in the reader's device and the owner's, and its completion. Each part is
   fetched at a time of its own, lands later, and the completion is polled later still. */
proctype Read(byte c) {
end:
  do
  :: d_step { posted[c] && fetched[c] < PARTS ->            /* D */
       wire[c * PARTS + fetched[c]] = content[remote_buf[c] * PARTS + fetched[c]];
       fetched[c]++ }
  /* The bytes land, some time later; and Puller::on_read (success), record_over, reads_over. That
     they may land earlier than the completion is polled cannot be seen: nobody looks before. */
  :: d_step { posted[c] && fetched[c] == PARTS && !flushing[c] ->     /* C */
       land(c);
       read_over(c);
       if
       :: transfer[c] == T_READING ->
#if defined(MUTANT_NO_CONFIRM)
         frame_to_callee(c, RELEASE, lease_slot[c], lease_gen[c], lease_epoch[c]);
         accept(c)
#elif defined(MUTANT_EARLY_CONFIRM)
         if
         :: answered[c] -> accept(c)
         :: else -> transfer[c] = T_CONFIRMING
         fi
#else
         transfer[c] = T_CONFIRMING;
         frame_to_callee(c, CONFIRM, lease_slot[c], lease_gen[c], lease_epoch[c])
#endif
       :: else -> landing_free(c)                           /* Drained */
       fi }
  /* The same with an error: the endpoint was lost. Then Puller::end, which tries once more. */
  :: d_step { posted[c] && flushing[c] ->
       if
       :: fetched[c] == PARTS -> land(c)
       :: else
       fi;
       read_over(c);
       if
       :: transfer[c] == T_READING && tries[c] < TRIES_MAX -> tries[c]++; posted[c] = true
       :: transfer[c] == T_READING && tries[c] == TRIES_MAX ->
         frame_to_callee(c, CANCEL, 0, 0, 0);               /* ClientCall::pull_done */
         client[c] = C_OVER;
         landing_free(c)
       :: else -> landing_free(c)
       fi }
#if ENDPOINT_LOSSES > 0
  /* Connection::data_link_over: the fabric said so, or the READ took longer than read_timeout. */
  :: d_step { posted[c] && !flushing[c] && endpoint_losses < ENDPOINT_LOSSES ->
       endpoint_losses++;
       flushing[c] = true }
#endif
#ifdef MUTANT_RETRY_BEFORE_COMPLETION
  :: d_step { posted[c] && flushing[c] && transfer[c] == T_READING && tries[c] < TRIES_MAX &&
              fetched[c] > 0 && !old_read[c] ->
       old_read[c] = true; old_wire[c] = wire[c * PARTS];
       read_over(c);
       tries[c]++; posted[c] = true }
  :: d_step { old_read[c] ->                                /* it lands late, in the first part */
       assert(landing_of[PEER(c)] == c);
       landing[PEER(c) * PARTS] = old_wire[c]; old_read[c] = false; old_wire[c] = 0 }
#endif
  od
}

/* === loss and restart ======================================================================= */

#if LOSSES > 0 || RESTARTS > 0
inline connection_lost(p) {
  do
  :: nempty(to_callee[p]) -> to_callee[p]?_, _, _, _, _
  :: empty(to_callee[p]) && nempty(to_caller[p]) -> to_caller[p]?_, _, _, _, _
  :: empty(to_callee[p]) && empty(to_caller[p]) -> break
  od;
  losses[p]++;
  epoch[p]++;
  callee_told[p] = false;
  caller_told[p] = false
}
#endif

/* The end of caller p's connection, told to either end at a time of its own. */
proctype Loss(byte p) {
  byte c, s;
  bool won;
end:
#if LOSSES > 0 || RESTARTS > 0
  do
#if LOSSES > 0
  :: d_step { losses[p] < LOSSES && callee_told[p] && caller_told[p] -> connection_lost(p) }
#endif
  /* The caller's Connection::fail. A reader may do more than Pawl's: it may keep its transfers and
     go on over the next connection; the epoch has to refuse them. */
  :: d_step { !caller_told[p] ->
       c = p * CALLS;
       do
       :: c < (p + 1) * CALLS ->
         if
         :: client[c] == C_SENT || client[c] == C_LANDING -> client[c] = C_OVER
         :: client[c] == C_PULLING && transfer[c] == T_CONFIRMING ->
           client[c] = C_OVER; landing_free(c)              /* Puller::host_closed */
         :: client[c] == C_PULLING && transfer[c] == T_READING ->
           client[c] = C_OVER; transfer[c] = T_ENDING; flushing[c] = true
         :: else
         fi;
         c++
       :: else -> break
       od;
       c = 0;
       caller_told[p] = true }
#ifdef KEEP_TRANSFERS
  :: d_step { !caller_told[p] ->
       c = p * CALLS;
       do
       :: c < (p + 1) * CALLS ->
         if
         :: client[c] == C_SENT || client[c] == C_LANDING -> client[c] = C_OVER
         :: client[c] == C_PULLING ->
           call_epoch[c] = epoch[p];
           if
           :: transfer[c] == T_CONFIRMING ->
             to_callee[p]!CONFIRM, c, lease_slot[c], lease_gen[c], lease_epoch[c]
           :: else
           fi
         :: else
         fi;
         c++
       :: else -> break
       od;
       c = 0;
       caller_told[p] = true }
#endif
  /* The callee's Connection::fail: Lender::end_all, ServerCall::connection_over. */
  :: d_step { !callee_told[p] ->
       s = 0;
       do
       :: s < SLOTS ->
         if
         :: entry_call[s] != NONE && PEER(entry_call[s]) == p && entry_epoch[s] < epoch[p] ->
           over(s)
         :: else
         fi;
         s++
       :: else -> break
       od;
       c = p * CALLS;
       do
       :: c < (p + 1) * CALLS ->
         if
         :: call_epoch[c] < epoch[p] && (served[c] == S_QUEUED || served[c] == S_RUNNING) ->
           cancelled[c] = true
         :: else
         fi;
         c++
       :: else -> break
       od;
       c = 0; s = 0;
       callee_told[p] = true }
  od
#else
  skip
#endif
}

#if RESTARTS > 0
/* The callee's process ends and another one begins, with the memory as it was and, at worst, the
   same ids and generations again. Only PEERS == 1. */
proctype Restart() {
  byte s, c;
end:
  do
  :: d_step { restarts < RESTARTS && callee_told[0] && caller_told[0] ->
       restarts++;
       connection_lost(0);
       callee_told[0] = true;
       s = 0;
       do
       :: s < SLOTS -> word[s] = 0; lease_buf[s] = NONE; entry_call[s] = NONE; entry_gen[s] = 0;
         entry_epoch[s] = 0; s++
       :: else -> break
       od;
       s = 0;
       do
       :: s < BUFS -> refs[s] = 0; s++
       :: else -> break
       od;
       c = 0;
       do
       :: c < USES ->
         if
         :: served[c] != S_NONE -> served[c] = S_OVER
         :: else
         fi;
         handler_buf[c] = NONE; call_slot[c] = NONE; cancelled[c] = false; c++
       :: else -> break
       od;
       c = 0; s = 0 }
  od
}
#endif

/* === the end: nothing more can happen ======================================================= */

proctype Check() {
  byte i;
end:
  timeout ->
  d_step {
    do
    :: i < USES ->
      assert(client[i] == C_OVER || i >= PEER(i) * CALLS + CALLS_OF(PEER(i)));
      assert(transfer[i] == T_NONE && !posted[i]);
      assert(served[i] == S_OVER || served[i] == S_NONE);
      i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < BUFS -> assert(refs[i] == 0); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> assert(SLOT_FREE(i) && word[i] % 2 == 0); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < PEERS ->
      assert(landing_of[i] == NONE && empty(to_callee[i]) && empty(to_caller[i]));
      i++
    :: else -> break
    od
  }
}

init {
  byte i;
  atomic {
    do
    :: i < PEERS -> run Callee(i); run Caller(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < USES -> run Handler(i); run Call(i); run Read(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> run Ends(i); i++
    :: else -> break
    od;
    i = 0;
#if LOSSES > 0 || RESTARTS > 0
    do
    :: i < PEERS -> run Loss(i); i++
    :: else -> break
    od;
#endif
#if RESTARTS > 0
    run Restart();
#endif
    run Check()
  }
}
