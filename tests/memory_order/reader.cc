// SPDX-License-Identifier: Apache-2.0
#include "reader.h"

#include <array>
#include <utility>

namespace pawl::memory_order_test {

namespace {

using Sample = std::array<std::uint64_t, kWords>;

constexpr std::size_t kLineWords = 64 / sizeof(std::uint64_t);

void fetch(Sample& sample, const std::byte* memory, std::size_t i) {
  const auto* const word = reinterpret_cast<const std::uint64_t*>(memory) + i;
  sample[i] = __atomic_load_n(word, __ATOMIC_RELAXED);
}

// In several orders: a device may fetch the parts of a READ in any.
void sample_data(Sample& sample, const std::byte* memory, SmallRandom& random) {
  switch (random.below(4)) {
    case 0:
      for (std::size_t i = 0; i < kWords; ++i) fetch(sample, memory, i);
      break;
    case 1:
      for (std::size_t i = kWords; i-- > 0;) fetch(sample, memory, i);
      break;
    case 2: {
      const std::size_t from = random.below(kWords);
      for (std::size_t i = from; i < kWords; ++i) fetch(sample, memory, i);
      for (std::size_t i = 0; i < from; ++i) fetch(sample, memory, i);
      break;
    }
    default:
      for (std::size_t odd = 0; odd < 2; ++odd) {
        for (std::size_t i = 0; i < kWords; ++i) {
          if ((i / kLineWords) % 2 == odd) fetch(sample, memory, i);
        }
      }
      break;
  }
}

void add(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

void read_until_stopped(Shared& shared, const memory::Lease& lease, const std::byte* memory,
                        std::uint64_t seed) {
  SmallRandom random(seed);
  Sample sample{};
  std::uint64_t overlapped = 0;  // the last round that was
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const std::uint64_t generation = shared.lent.load(std::memory_order_acquire);
    if (random.below(4) == 0) pause(random.below(256));
    sample_data(sample, memory, random);                  // D
    std::atomic_thread_fence(std::memory_order_acquire);  // C
    if (random.below(4) == 0) pause(random.below(256));
    const bool valid = lease.valid(generation);  // F

    bool of_this_use = true;
    bool of_one_use = true;
    for (std::size_t i = 0; i < kWords; ++i) {
      of_this_use &= use_of(sample[i], i) == generation;
      of_one_use &= use_of(sample[i], i) == sample[0];
    }
    add(valid ? shared.valid : shared.refused);
    if (!of_one_use && generation != std::exchange(overlapped, generation)) {
      add(shared.overlapped);
    }
    if (valid && !of_this_use) add(shared.wrong);
    add(shared.samples);
  }
}

}  // namespace pawl::memory_order_test
