// SPDX-License-Identifier: Apache-2.0
#include "kit/hold.h"

namespace pawl::kit {

using fabric::Opcode;

void Hold::arm(Point point, bool upload, bool whole_device) {
  point_ = point;
  upload_ = upload;
  whole_device_ = whole_device;
  begun_ = accepted_ = false;
  completed_before_ = node_.stats().reads_completed;
  // Whatever is held later, first the READs are: what is held from then on belongs to them.
  fabric_.hold_reads(true);
}

void Hold::execute_reads() {
  fabric_.hold_reads(false);
  fabric_.release_reads();
}

// The READs are posted. False: not yet.
bool Hold::begin() {
  const bool some_of_many = *point_ == Point::in_read && !whole_device_;
  if (fabric_.reads_held() < (some_of_many ? 2 : 1)) return false;
  switch (*point_) {
    case Point::read_posted:
      break;
    case Point::in_read:
      if (whole_device_) {
        execute_reads();
      } else {
        fabric_.release_reads(1);
      }
      break;
    case Point::read_done:
      fabric_.hold_completions(true, Opcode::read);
      execute_reads();
      break;
    case Point::confirm_sent:
      fabric_.hold_sends(true);
      execute_reads();
      break;
    case Point::release:
      if (!upload_) fabric_.hold_completions(true, Opcode::receive);
      execute_reads();
      break;
  }
  return true;
}

bool Hold::reached() {
  if (!point_) return false;
  if (!begun_) {
    begun_ = begin();
    if (!begun_) return false;
  }
  bool there = false;
  switch (*point_) {
    case Point::read_posted:
      there = true;
      break;
    case Point::in_read:
      there = reads_completed() >= 1 && node_.stats().transfers_live == 1;
      break;
    case Point::read_done:
      there = fabric_.completions_held() >= 1;
      break;
    case Point::confirm_sent:
      there = reads_completed() >= 1 && fabric_.sends_held() >= 1;
      break;
    case Point::release:
      there = upload_ ? accepted_ && fabric_.sends_held() >= 1
                      : reads_completed() >= 1 && fabric_.completions_held() >= 1;
      break;
  }
  if (there) point_.reset();
  return there;
}

void Hold::accepted() {
  if (!point_ || *point_ != Point::release) return;
  accepted_ = true;
  fabric_.hold_sends(true);
}

void Hold::let_go() {
  point_.reset();
  execute_reads();
  fabric_.hold_completions(false);
  fabric_.release_completions();
  fabric_.hold_sends(false);
  fabric_.release_sends();
}

}  // namespace pawl::kit
