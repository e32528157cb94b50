// SPDX-License-Identifier: Apache-2.0
// Of isa-l, which the build for x86-64 takes from its package: the one function that is used.
#pragma once

extern "C" unsigned int crc32_iscsi(unsigned char* bytes, int count, unsigned int state);
