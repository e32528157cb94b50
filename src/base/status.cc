// SPDX-License-Identifier: Apache-2.0
#include "pawl/status.h"

#include <atomic>
#include <new>

namespace pawl {
namespace {

/// An owned sentence, shared by the copies of a Status.
class Detail {
 public:
  explicit Detail(std::string text) noexcept : text_(std::move(text)) {}
  static Detail* of(const void* text) noexcept {
    return static_cast<Detail*>(const_cast<void*>(text));
  }
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  [[nodiscard]] std::string_view text() const noexcept { return text_; }

 private:
  std::atomic<std::uint32_t> references_{1};
  const std::string text_;
};

}  // namespace

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::unavailable:
      return "unavailable";
    case Code::overloaded:
      return "overloaded";
    case Code::resource_exhausted:
      return "resource_exhausted";
    case Code::stale:
      return "stale";
    case Code::connection_lost:
      return "connection_lost";
    case Code::data_lost:
      return "data_lost";
    case Code::protocol_error:
      return "protocol_error";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_found:
      return "not_found";
    case Code::already_exists:
      return "already_exists";
    case Code::failed_precondition:
      return "failed_precondition";
    case Code::permission_denied:
      return "permission_denied";
    case Code::unauthenticated:
      return "unauthenticated";
    case Code::unimplemented:
      return "unimplemented";
    case Code::too_large:
      return "too_large";
    case Code::deadline:
      return "deadline";
    case Code::cancelled:
      return "cancelled";
    case Code::aborted:
      return "aborted";
    case Code::internal:
      return "internal";
    case Code::handler_threw:
      return "handler_threw";
    case Code::corrupt:
      return "corrupt";
  }
  return "unknown";
}

std::string_view ran_name(Ran ran) {
  switch (ran) {
    case Ran::no:
      return "no";
    case Ran::unknown:
      return "unknown";
    case Ran::yes:
      return "yes";
  }
  return "unknown";
}

Status Status::with_detail(Code code, std::string detail, Ran ran, std::int32_t native) {
  Status status(code, nullptr, ran, native);
  status.text_ = new Detail(std::move(detail));
  status.owned_ = true;
  return status;
}

Status::Status(const Status& other) noexcept
    : code_(other.code_),
      ran_(other.ran_),
      owned_(other.owned_),
      native_(other.native_),
      text_(other.text_) {
  if (owned_) Detail::of(text_)->retain();
}

Status& Status::operator=(const Status& other) noexcept {
  if (this != &other) *this = Status(other);
  return *this;
}

Status& Status::operator=(Status&& other) noexcept {
  if (this == &other) return *this;
  if (owned_) release();
  code_ = other.code_;
  ran_ = other.ran_;
  native_ = other.native_;
  owned_ = std::exchange(other.owned_, false);
  text_ = std::exchange(other.text_, nullptr);
  return *this;
}

void Status::release() noexcept {
  owned_ = false;
  Detail::of(std::exchange(text_, nullptr))->release();
}

std::string_view Status::what() const noexcept {
  if (text_ == nullptr) return {};
  if (owned_) return Detail::of(text_)->text();
  return static_cast<const char*>(text_);
}

Status Status::with_ran(Ran ran) const& {
  Status status(*this);
  status.ran_ = ran;
  return status;
}

Status Status::with_ran(Ran ran) && {
  ran_ = ran;
  return std::move(*this);
}

bool Status::retryable(bool idempotent) const noexcept {
  switch (code_) {
    case Code::unavailable:
    case Code::overloaded:
    case Code::resource_exhausted:
    case Code::stale:
    case Code::connection_lost:
    case Code::data_lost:
      return idempotent || ran_ == Ran::no;
    default:
      return false;
  }
}

std::string Status::to_string() const {
  std::string text(code_name(code_));
  if (ok()) return text;
  if (ran_ != Ran::no || native_ != 0) {
    text += " (ran: ";
    text += ran_name(ran_);
    if (native_ != 0) text += ", native: " + std::to_string(native_);
    text += ')';
  }
  if (!what().empty()) {
    text += ": ";
    text += what();
  }
  return text;
}

}  // namespace pawl
