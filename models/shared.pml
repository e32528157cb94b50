// SPDX-License-Identifier: Apache-2.0
/* Shared blocks under guard `verify`: blocks 0 and 1 of a Region. Lease 0 lends block 0 to one
   reader (a download, one segment), lease 1 lends both blocks to another one (an upload, two
   segments), ROUNDS times each. Meanwhile a thread of the user takes blocks back with
   Region::reuse, writes them, and lends them again. Words and lists change in single steps, since
   here threads meet. */

#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef REUSES
#define REUSES 2                 /* of block 0, 1, 0, … in turn */
#endif
#define PARTS 2
#define BLOCKS 2
#define LEASES 2
#define SEGMENTS(l) ((l) + 1)    /* lease 0: block 0; lease 1: blocks 0 and 1 */
#define AT(l, i) ((l) * 2 + (i))

byte content[BLOCKS * PARTS] = 1;
byte version[BLOCKS] = 1;        /* the use of a block, by number */
bool readable[BLOCKS] = true;    /* RegionCore::readable: Region::block was called */

byte word[LEASES];               /* Lease::word_ */
byte generation[LEASES];         /* Lease::generation_ */
byte segment_word[LEASES * 2];   /* LeaseSegment::word */
bool listed[LEASES * 2];         /* LeaseSegment::place == listed */
byte expected[LEASES * 2];       /* the use that was lent */
byte remaining[LEASES];
bool lent[LEASES];               /* the Lender has an entry */
bool hold[LEASES];               /* Lease::holds_: a withdrawal is under way; the slot stays */
byte rounds[LEASES];

mtype = { DESCRIPTOR, ANSWER, CONFIRM, RELEASE };
chan to_reader[LEASES] = [2] of { mtype, byte, byte };   /* kind, generation, good segments */
chan to_owner[LEASES] = [2] of { mtype, byte };

/* memory::end_word */
inline end_word(w, from, won) {
  won = (w == from);
  if
  :: won -> w++
  :: else
  fi
}

/* Lease::give_back_all */
inline give_back(l) {
  listed[AT(l, 0)] = false; listed[AT(l, 1)] = false
}

#ifdef MUTANT_ADMIT_UNCHECKED
#define ADMIT(b) true
#else
#define ADMIT(b) readable[b]
#endif
#ifdef MUTANT_SEGMENT_WORD_IGNORED
#define SEGMENT_VALID(l, i, g) true
#else
#define SEGMENT_VALID(l, i, g) (segment_word[AT(l, i)] == g)
#endif

/* The owner's poller for one lease: Lender, Lease. */
proctype Owner(byte l) {
  byte g, i, good;
  bool won;
end:
  do
  /* LeaseTable::lend: list_single opens the word and lists in one critical section; list_many
     opens first and then lists segment by segment. Extent::admit refuses what is the writer's. */
  :: d_step { !lent[l] && !hold[l] && rounds[l] < ROUNDS && l == 0 ->
       rounds[l]++;
       if
       :: ADMIT(0) ->
         word[l]++; generation[l] = word[l];
         segment_word[AT(l, 0)] = word[l]; expected[AT(l, 0)] = version[0];
         listed[AT(l, 0)] = true; remaining[l] = 1; lent[l] = true;
         to_reader[l]!DESCRIPTOR, generation[l], 0
       :: else
       fi }
  :: d_step { !lent[l] && !hold[l] && rounds[l] < ROUNDS && l == 1 ->
       rounds[l]++;
       word[l]++; generation[l] = word[l];
       segment_word[AT(l, 0)] = word[l]; segment_word[AT(l, 1)] = word[l];
       remaining[l] = 2; good = 1 };
     i = 0;
     do
     :: d_step { i < 2 && good && ADMIT(i) ->
          listed[AT(l, i)] = true; expected[AT(l, i)] = version[i]; i++ }
     :: d_step { i < 2 && good && !ADMIT(i) -> good = 0 }
     :: i == 2 || !good -> break
     od;
     skip;
     d_step {
       if
       :: good -> lent[l] = true; to_reader[l]!DESCRIPTOR, generation[l], 0
       :: else ->                                 /* Lease::refused */
         if
         :: word[l] % 2 == 1 -> word[l]++
         :: else
         fi;
         give_back(l)
       fi;
       i = 0; good = 0 }
  /* Lender::confirm: the word of the lease, then those of its segments, one look at a time: F. */
  :: d_step { to_owner[l]?CONFIRM(g) -> good = (word[l] == g -> 3 : 0) };
     do
     :: d_step { i < SEGMENTS(l) && SEGMENT_VALID(l, i, g) -> i++ }
     :: d_step { i < SEGMENTS(l) && !SEGMENT_VALID(l, i, g) ->
          good = good & ~(1 << i); i++ }
     :: i == SEGMENTS(l) -> break
     od;
     skip;
     d_step {
       to_reader[l]!ANSWER, g, good;
       if
       :: l == 0 ->                               /* release = 1: Lender::over */
         end_word(word[l], g, won);
         if
         :: won -> give_back(l)
         :: else
         fi;
         lent[l] = false
       :: else
       fi;
       g = 0; i = 0; good = 0; won = false }
  /* The response of the upload, or the release of a reader that gives up: ClientCall::take_back. */
  :: d_step { to_owner[l]?RELEASE(g) ->
       end_word(word[l], g, won);
       if
       :: won -> give_back(l)
       :: else
       fi;
       lent[l] = false; g = 0; won = false }
  /* Timeout or cancel: the lease ends, whatever its reader does. */
  :: d_step { lent[l] && word[l] % 2 == 1 -> word[l]++ };
     d_step { give_back(l) }
  od
}

/* One reader: READs part by part, completions, CONFIRM, acceptance of the good segments. */
proctype Reader(byte l) {
  byte g, i, good;
  byte landing[BLOCKS * PARTS];
  byte use[2];                   /* what was lent, by segment */
end:
  do
  :: d_step { to_reader[l]?DESCRIPTOR(g, good) ->
       use[0] = expected[AT(l, 0)]; use[1] = expected[AT(l, 1)];
       i = 0; good = 0 };
     do
     :: d_step { i < SEGMENTS(l) * PARTS -> landing[i] = content[i]; i++ }     /* D */
     :: i == SEGMENTS(l) * PARTS -> break                                      /* C */
     od;
     skip;
     d_step { i = 0; to_owner[l]!CONFIRM(g) };
     d_step { to_reader[l]?ANSWER(g, good) ->
       do
       :: i < SEGMENTS(l) && (good & (1 << i)) ->           /* Landing::accept */
         assert(landing[i * PARTS] == use[i]);
         assert(landing[i * PARTS + 1] == use[i]);
         i++
       :: i < SEGMENTS(l) && !(good & (1 << i)) -> i++      /* Landing::discard */
       :: i == SEGMENTS(l) -> break
       od;
       i = 0;
       do
       :: i < BLOCKS * PARTS -> landing[i] = 0; i++
       :: else -> break
       od;
       if
       :: l == 1 -> to_owner[l]!RELEASE(g)
       :: else
       fi;
       use[0] = 0; use[1] = 0; g = 0; i = 0; good = 0 }
  od
}

/* Lease::withdraw and withdrawn, for the segment of lease l in block b. */
inline withdraw(l, b) {
  d_step {
    if
    :: listed[AT(l, b)] && l == 0 -> end_word(word[l], generation[l], won)
    :: listed[AT(l, b)] && l == 1 -> end_word(segment_word[AT(l, b)], generation[l], won)
    :: else
    fi;
    hold[l] = won
  };
  d_step {
    if
    :: won ->
      listed[AT(l, b)] = false;
      remaining[l]--;
      if
      :: remaining[l] == 0 && word[l] % 2 == 1 -> word[l]++
      :: else
      fi
    :: else
    fi;
    won = false; hold[l] = false
  }
}

/* The user's thread: Region::reuse, the new bytes, Region::block. */
proctype User() {
  byte n, b;
  bool won;
  do
  :: n < REUSES ->
    d_step { b = n % 2; readable[b] = false };
#ifdef MUTANT_REUSE_BEFORE_WITHDRAWAL
    d_step { content[b * PARTS] = version[b] + 1 };
#endif
    if
    :: b == 0 -> withdraw(0, 0)
    :: else
    fi;
#ifndef MUTANT_ONE_LEASE_WITHDRAWN
    withdraw(1, b);
#endif
    d_step { content[b * PARTS] = version[b] + 1 };         /* W */
    d_step { content[b * PARTS + 1] = version[b] + 1 };
    d_step { version[b]++; readable[b] = true; n++ }
  :: else -> break
  od
}

proctype Check() {
  byte i;
end:
  timeout ->
  d_step {
    do
    :: i < LEASES ->
      assert(word[i] % 2 == 0 && !lent[i] && rounds[i] == ROUNDS);
      assert(!listed[AT(i, 0)] && !listed[AT(i, 1)]);
      assert(empty(to_reader[i]) && empty(to_owner[i]));
      i++
    :: else -> break
    od
  }
}

init {
  atomic {
    run Owner(0); run Owner(1); run Reader(0); run Reader(1); run User(); run Check()
  }
}
