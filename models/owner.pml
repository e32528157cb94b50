// SPDX-License-Identifier: Apache-2.0
/* The owner's side of a lease, shared by the models: generation words, references to the memory,
   the Lender's entries. Names are those of the code (README.md has the table). */

#define NONE 255

byte content[BUFS * PARTS];      /* what stands in each part of the owner's memory: a use's number */
byte refs[BUFS];                 /* detail::Extent: references; 0 = the Pool may hand it out */

byte word[SLOTS];                /* memory::LeaseTable: generation words; odd = LENT */
byte lease_buf[SLOTS] = NONE;    /* memory::Lease: the reference that it holds, until `finish` */
byte entry_call[SLOTS] = NONE;   /* bulk::Lender::Entry: the call that lent; NONE: no entry */
byte entry_epoch[SLOTS];         /* the connection that it was lent over (LendHost) */
byte entry_gen[SLOTS];

#define SLOT_FREE(s) (entry_call[s] == NONE && lease_buf[s] == NONE)

/* Lease::prepare and list_single: from here on LENT. The caller's reference becomes the lease's. */
inline lend(s, c, e, b) {
  word[s]++;
  entry_call[s] = c;
  entry_epoch[s] = e;
  entry_gen[s] = word[s];
  lease_buf[s] = b
}

/* memory::end_word: the one compare-and-swap; `won` is the caller's. */
inline end_word(s, generation, won) {
  won = (word[s] == generation);
  if
  :: won -> word[s]++
  :: else
  fi
}

/* Lease::finish, give_back: the reference drops, and with the last one the Pool has the buffer. */
inline give_back(s) {
  if
  :: lease_buf[s] != NONE -> refs[lease_buf[s]]--; lease_buf[s] = NONE
  :: else
  fi
}

/* Lease::end, in two steps: others run in between. A caller that lost leaves the rest to the one
   that won. */
#ifdef MUTANT_END_AFTER_FREE
#define END_FIRST(s, generation, won) won = (word[s] == generation); give_back(s)
#define END_SECOND(s, generation, won) end_word(s, generation, won)
#else
#define END_FIRST(s, generation, won) end_word(s, generation, won)
#define END_SECOND(s, generation, won) give_back(s)
#endif
