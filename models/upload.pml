// SPDX-License-Identifier: Apache-2.0
/* Upload under guard `verify`: a caller lends, the handler of the callee pulls, several times if it
   likes, drops pulls, and answers when it likes. A use's number is its call's number plus one.
   With HOLD the channel has hold_until_ack. */

#ifndef CALLS
#define CALLS 2
#endif
#ifndef PULLS
#define PULLS 2                  /* of one handler */
#endif
#ifndef BUFS
#define BUFS 1
#endif
#ifndef LOSSES
#define LOSSES 0                 /* of the connection */
#endif
#define SLOTS 2
#define PARTS 2
#define TRANSFERS (CALLS * PULLS)
#define CALL(t) ((t) / PULLS)
#ifndef PULLS_1
#define PULLS_1 PULLS            /* of the handlers of the other calls */
#endif
#define PULLS_OF(c) (c == 0 -> PULLS : PULLS_1)

#include "owner.pml"

mtype = { REQUEST, RESPONSE, CONFIRM, CONFIRM_ANSWER, CANCEL, CANCEL_ACK };
/* kind, call, transfer, slot, generation, buffer or validity */
chan to_callee = [CALLS * (2 + PULLS)] of { mtype, byte, byte, byte, byte, byte };
chan to_caller = [CALLS * (2 + PULLS)] of { mtype, byte, byte, byte, byte, byte };

/* --- the caller: ClientCall, Lender --- */

mtype = { C_IDLE, C_FILLING, C_LENT, C_SENT, C_OVER };
mtype client[CALLS] = C_IDLE;
byte own_buf[CALLS] = NONE;      /* the application's Buffer; then what the descriptor says */
byte call_slot[CALLS] = NONE;    /* ClientCall::lease_id_ */
byte held_call[SLOTS] = NONE;    /* LentList::Held: ended, not settled */

/* --- the callee: ServerCall, PullBase, Puller::Transfer, and the READs --- */

mtype = { S_NONE, S_RUNNING, S_OVER };
mtype served[CALLS] = S_NONE;
bool cancelled[CALLS];
bool ack_due[CALLS];
byte started[CALLS];             /* pulls */
byte lease_slot[CALLS];          /* what the descriptor says */
byte lease_gen[CALLS];
byte remote_buf[CALLS];

mtype = { T_NONE, T_READING, T_CONFIRMING, T_ENDING };
mtype transfer[TRANSFERS] = T_NONE;
byte fetched[TRANSFERS];
byte landing[TRANSFERS * PARTS];

byte losses;
byte epoch;
byte call_epoch[CALLS];
bool callee_told = true;
bool caller_told = true;
#define CONNECTED(c) (call_epoch[c] == epoch)
inline frame_to_callee(c, kind, t, s, g, x) {
  if
  :: CONNECTED(c) -> to_callee!kind, c, t, s, g, x
  :: else
  fi
}
inline frame_to_caller(c, kind, t, s, g, x) {
  if
  :: CONNECTED(c) -> to_caller!kind, c, t, s, g, x
  :: else
  fi
}

/* === the caller ============================================================================= */

#ifdef HOLD
#define HOLDS true
#else
#define HOLDS false
#endif

/* Lender::over: with hold_until_ack the memory waits for the acknowledgement, unless it was
   released or the connection is over. */
inline over(s, hold) {
  end_word(s, entry_gen[s], won);
  if
  :: hold -> held_call[s] = entry_call[s]
  :: !hold && (won || HOLDS) -> give_back(s)      /* Lease::finish, or settle */
  :: else
  fi;
  won = false;
  call_slot[entry_call[s]] = NONE;
  entry_call[s] = NONE; entry_gen[s] = 0; entry_epoch[s] = 0
}
/* ClientCall::take_back. */
inline take_back(c, hold) {
  s = call_slot[c];
  if
  :: s != NONE -> over(s, hold)
  :: else
  fi;
  s = 0
}

proctype Call(byte c) {
  byte b, s;
  bool won;
end:
  do
  /* Pool::acquire: any buffer that is free; then the application writes it: W. */
  :: d_step { client[c] == C_IDLE && refs[0] == 0 && caller_told ->
       refs[0] = 1; own_buf[c] = 0; content[0] = c + 1; client[c] = C_FILLING }
#if BUFS > 1
  :: d_step { client[c] == C_IDLE && refs[1] == 0 && caller_told ->
       refs[1] = 1; own_buf[c] = 1; content[PARTS] = c + 1; client[c] = C_FILLING }
#endif
  /* ClientCall::prepare_frame */
  :: d_step { client[c] == C_FILLING && caller_told && (SLOT_FREE(0) || SLOT_FREE(1)) ->
       b = own_buf[c];
       content[b * PARTS + 1] = c + 1;
       s = (SLOT_FREE(0) -> 0 : 1);
       lend(s, c, epoch, b);
       call_slot[c] = s;
       call_epoch[c] = epoch;
       client[c] = C_LENT;
       b = 0; s = 0 }
  /* frame_sent: all parts of a long request are out */
  :: d_step { client[c] == C_LENT ->
       s = call_slot[c];
       if
       :: s != NONE -> frame_to_callee(c, REQUEST, 0, s, entry_gen[s], own_buf[c])
       fi;
       own_buf[c] = NONE; client[c] = C_SENT; s = 0 }
  /* ClientCall::on_deadline, cancel: first the end of the lease, then the frame, then the user. Of
     a request that did not go out nobody can read: there is nothing to wait for. */
  :: d_step { client[c] == C_LENT ->
#ifdef MUTANT_HOLD_WITHOUT_CANCEL
       take_back(c, HOLDS);
#else
       take_back(c, false);
#endif
       own_buf[c] = NONE; client[c] = C_OVER }
  :: d_step { client[c] == C_SENT ->
       take_back(c, HOLDS);
       frame_to_callee(c, CANCEL, 0, 0, 0, 0);
       client[c] = C_OVER }
  od
}

/* Lender::find, Lease::valid. */
#ifdef MUTANT_GENERATION_IGNORED
#define FOUND(s, g) (entry_call[s] != NONE && entry_epoch[s] == epoch)
#define VALID(s, g) (word[s] % 2 == 1)
#else
#define FOUND(s, g) (entry_call[s] != NONE && entry_epoch[s] == epoch && entry_gen[s] == g)
#define VALID(s, g) (word[s] == g)
#endif

/* Connection::on_frame of the caller. */
proctype Caller() {
  byte c, t, s, g, x;
  bool won;
end:
  do
  :: d_step { to_caller?CONFIRM(c, t, s, g, x) ->
       x = FOUND(s, g) && VALID(s, g);                      /* F */
       frame_to_callee(c, CONFIRM_ANSWER, t, s, g, x);
       c = 0; t = 0; s = 0; g = 0; x = 0 }
  :: d_step { to_caller?RESPONSE(c, t, s, g, x) ->          /* ClientCall::on_response */
       if
       :: client[c] == C_SENT -> take_back(c, false); client[c] = C_OVER
       :: else
       fi;
       c = 0; t = 0; s = 0; g = 0; x = 0 }
  :: d_step { to_caller?CANCEL_ACK(c, t, s, g, x) ->        /* Lender::acknowledge */
       s = 0;
       do
       :: s < SLOTS ->
         if
         :: held_call[s] == c -> held_call[s] = NONE; give_back(s)
         :: else
         fi;
         s++
       :: else -> break
       od;
       c = 0; t = 0; s = 0; g = 0; x = 0 }
  od
}

/* Another thread ends the lease: Block::retire, or the pool that needs room. With HOLD the memory
   is given back when the Lender comes to it. */
proctype Ends(byte s) {
  bool won;
  byte g;
end:
  do
#ifdef HOLD
  :: d_step { word[s] % 2 == 1 -> g = word[s]; end_word(s, g, won); won = false; g = 0 }
#else
  :: d_step { word[s] % 2 == 1 -> g = word[s]; END_FIRST(s, g, won) };
     d_step { won -> END_SECOND(s, g, won); won = false; g = 0 }
#endif
  od
}

/* === the callee ============================================================================= */

/* No READ of the call is out: ServerCall::reading_ == 0. PULLS <= 2. */
#define LIVE(t) (transfer[t] != T_NONE)
#define READING(c) (LIVE(c * PULLS) || LIVE(c * PULLS + PULLS - 1))

/* ServerCall::acknowledge_cancel. */
inline acknowledge_cancel(c) {
  if
  :: ack_due[c] && !READING(c) -> ack_due[c] = false; frame_to_caller(c, CANCEL_ACK, 0, 0, 0, 0)
  :: else
  fi
}

inline transfer_over(t) {
  transfer[t] = T_NONE; fetched[t] = 0; landing[t * PARTS] = 0; landing[t * PARTS + 1] = 0
}

/* PullBase::let_go, Puller::abandon: a READ that is out goes on. */
inline let_go(t) {
  if
  :: transfer[t] == T_READING -> transfer[t] = T_ENDING
  :: transfer[t] == T_CONFIRMING -> transfer_over(t)
  :: else
  fi
}
inline let_go_all(c) {
  let_go(c * PULLS);
#if PULLS > 1
  let_go(c * PULLS + 1)
#endif
}

/* The check was valid: the bytes are the handler's, and all of them of this use. */
inline accept(t) {
  assert(landing[t * PARTS] == CALL(t) + 1);
  assert(landing[t * PARTS + 1] == CALL(t) + 1);
  transfer_over(t)
}

/* Connection::on_frame of the callee. */
proctype Callee() {
  byte c, t, s, g, x;
end:
  do
  :: d_step { to_callee?REQUEST(c, t, s, g, x) ->
       served[c] = S_RUNNING; lease_slot[c] = s; lease_gen[c] = g; remote_buf[c] = x;
       c = 0; t = 0; s = 0; g = 0; x = 0 }
  :: d_step { to_callee?CONFIRM_ANSWER(c, t, s, g, x) ->    /* Puller::on_confirm_answer */
#ifdef MUTANT_ANSWER_BY_LEASE
       /* To the first transfer of the lease that waits for one. */
       t = 0;
       do
       :: t < TRANSFERS && !(transfer[t] == T_CONFIRMING && lease_slot[CALL(t)] == s &&
          lease_gen[CALL(t)] == g) -> t++
       :: else -> break
       od;
#endif
       if
       :: t < TRANSFERS && transfer[t] == T_CONFIRMING ->
         if
         :: x -> accept(t)
         :: else -> transfer_over(t)                        /* stale */
         fi
       :: else
       fi;
       acknowledge_cancel(c);
       c = 0; t = 0; s = 0; g = 0; x = 0 }
  :: d_step { to_callee?CANCEL(c, t, s, g, x) ->            /* ServerCall::on_cancel */
       ack_due[c] = true;
       if
       :: served[c] == S_RUNNING -> cancelled[c] = true; let_go_all(c)
       :: else
       fi;
       acknowledge_cancel(c);
       c = 0; t = 0; s = 0; g = 0; x = 0 }
  od
}

#if defined(HOLD) && !defined(MUTANT_ANSWER_WHILE_READING)
#define MAY_ANSWER(c) (cancelled[c] || !READING(c))
#else
#define MAY_ANSWER(c) true
#endif

/* The handler: pulls, drops pulls, answers. */
proctype Handler(byte c) {
end:
  do
  /* PullBase::start_reads, Puller::start. Landing memory and second tries: download.pml. */
  :: d_step { served[c] == S_RUNNING && !cancelled[c] && started[c] < PULLS_OF(c) ->
       transfer[c * PULLS + started[c]] = T_READING;
       started[c]++ }
  :: d_step { served[c] == S_RUNNING && (transfer[c * PULLS] == T_READING ||
              transfer[c * PULLS] == T_CONFIRMING) -> let_go(c * PULLS) }
  /* ServerCall::answer: the pulls end; nobody waits for the answer of a cancelled call. */
  :: d_step { served[c] == S_RUNNING && MAY_ANSWER(c) ->
       let_go_all(c);
       served[c] = S_OVER;
       if
       :: cancelled[c] -> acknowledge_cancel(c)
       :: else -> frame_to_caller(c, RESPONSE, 0, 0, 0, 0)
       fi;
       cancelled[c] = false; started[c] = PULLS }
  od
}

/* The READ of a transfer: each part is fetched at a time of its own. */
proctype Read(byte t) {
end:
  do
  :: d_step { (transfer[t] == T_READING || transfer[t] == T_ENDING) && fetched[t] < PARTS ->  /* D */
#ifdef HOLD
       /* hold_until_ack: bytes of another use do not even reach the peer. */
       assert(content[remote_buf[CALL(t)] * PARTS + fetched[t]] == CALL(t) + 1);
#endif
       landing[t * PARTS + fetched[t]] = content[remote_buf[CALL(t)] * PARTS + fetched[t]];
       fetched[t]++ }
  :: d_step { transfer[t] == T_READING && fetched[t] == PARTS ->                              /* C */
       transfer[t] = T_CONFIRMING;
       frame_to_caller(CALL(t), CONFIRM, t, lease_slot[CALL(t)], lease_gen[CALL(t)], 0) }
  :: d_step { transfer[t] == T_ENDING && fetched[t] == PARTS ->
       transfer_over(t);                                    /* PullBase::on_drained, read_over */
       acknowledge_cancel(CALL(t)) }
  od
}

/* === the loss of the connection; the next calls go over another one ========================= */

#if LOSSES > 0
proctype Loss() {
  byte c, s;
  bool won;
end:
  do
  :: d_step { losses < LOSSES && callee_told && caller_told ->
       do
       :: nempty(to_callee) -> to_callee?_, _, _, _, _, _
       :: empty(to_callee) && nempty(to_caller) -> to_caller?_, _, _, _, _, _
       :: empty(to_callee) && empty(to_caller) -> break
       od;
       losses++;
       epoch++;
       callee_told = false;
       caller_told = false }
  /* Connection::fail of the caller: Lender::end_all, ClientCall::connection_over. */
  :: d_step { !caller_told ->
       s = 0;
       do
       :: s < SLOTS ->
         if
         :: entry_call[s] != NONE && entry_epoch[s] < epoch -> over(s, false)
         :: else
         fi;
         s++
       :: else -> break
       od;
       c = 0;
       do
       :: c < CALLS ->
         if
         :: client[c] == C_LENT || client[c] == C_SENT -> client[c] = C_OVER; own_buf[c] = NONE
         :: else
         fi;
         c++
       :: else -> break
       od;
       c = 0; s = 0;
       caller_told = true }
  /* Of the callee: Puller::host_closed, ServerCall::connection_over. */
  :: d_step { !callee_told ->
       c = 0;
       do
       :: c < CALLS ->
         if
         :: served[c] == S_RUNNING && call_epoch[c] < epoch -> cancelled[c] = true; let_go_all(c)
         :: else
         fi;
         c++
       :: else -> break
       od;
       c = 0;
       callee_told = true }
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
    :: i < CALLS ->
      assert(client[i] == C_OVER && served[i] != S_RUNNING && !ack_due[i]);
      i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < TRANSFERS -> assert(transfer[i] == T_NONE); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < BUFS -> assert(refs[i] == 0); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> assert(SLOT_FREE(i) && word[i] % 2 == 0 && held_call[i] == NONE); i++
    :: else -> break
    od;
    assert(empty(to_callee) && empty(to_caller))
  }
}

init {
  byte i;
  atomic {
    run Callee(); run Caller();
    do
    :: i < CALLS -> run Call(i); run Handler(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < TRANSFERS -> run Read(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> run Ends(i); i++
    :: else -> break
    od;
    i = 0;
#if LOSSES > 0
    run Loss();
#endif
    run Check()
  }
}
