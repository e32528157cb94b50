// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace pawl::flow {

/// Finds objects by 64-bit ids that others chose (0 is no id). Bounded, allocated once, at most
/// half full, so that a look-up probes few places. Owns nothing. One thread.
template <class T>
class IdTable {
 public:
  explicit IdTable(std::size_t entries_max) : places_(std::bit_ceil(entries_max * 2 + 2)) {}

  /// nullptr if there is none.
  [[nodiscard]] T* find(std::uint64_t id) const noexcept {
    const Place& place = places_[place_of(id)];
    return place.id == id ? place.object : nullptr;
  }
  void insert(std::uint64_t id, T& object) noexcept {
    PAWL_CHECK(id != 0, "0 is no id");
    PAWL_CHECK(size_ * 2 < places_.size(), "an id table holds more than it was made for");
    Place& place = places_[place_of(id)];
    PAWL_CHECK(place.id == 0, "an id is in use already");
    place = {id, &object};
    ++size_;
  }
  void erase(std::uint64_t id) noexcept {
    std::size_t hole = place_of(id);
    PAWL_CHECK(places_[hole].id == id && id != 0, "an id is erased that is not there");
    // Entries behind the hole move into it unless that would put them before their first place.
    for (std::size_t at = next(hole); places_[at].id != 0; at = next(at)) {
      const std::size_t distance = (at - first_place(places_[at].id)) & mask();
      if (distance >= ((at - hole) & mask())) {
        places_[hole] = places_[at];
        hole = at;
      }
    }
    places_[hole] = {};
    --size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Place {
    std::uint64_t id = 0;
    T* object = nullptr;
  };

  [[nodiscard]] std::size_t mask() const noexcept { return places_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & mask(); }
  [[nodiscard]] std::size_t first_place(std::uint64_t id) const noexcept {
    return static_cast<std::size_t>((id * 0x9e3779b97f4a7c15ULL) >> 32) & mask();
  }
  /// Where the id is, or the empty place where it would be.
  [[nodiscard]] std::size_t place_of(std::uint64_t id) const noexcept {
    std::size_t at = first_place(id);
    while (places_[at].id != id && places_[at].id != 0) at = next(at);
    return at;
  }

  std::vector<Place> places_;
  std::size_t size_ = 0;
};

}  // namespace pawl::flow
