// SPDX-License-Identifier: Apache-2.0
#include <isa-l/crc.h>

extern "C" unsigned int crc32_iscsi(unsigned char* bytes, int count, unsigned int state) {
  constexpr unsigned int kPolynomial = 0x82f63b78;  // Castagnoli's, lowest bit first
  for (int i = 0; i < count; ++i) {
    state ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0);
  }
  return state;
}
