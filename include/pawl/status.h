// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace pawl {

/// What went wrong, grouped by what the caller should do about it. The list is closed and the
/// numbers are wire format (docs/wire.md): a number is never changed or used again.
enum class Code : std::uint8_t {
  ok = 0,
  // Try again, perhaps elsewhere or later.
  unavailable = 1,         ///< no connection to the peer, or the peer refuses new calls
  overloaded = 2,          ///< the peer shed the call before its handler
  resource_exhausted = 3,  ///< no buffer, credit or slot within the deadline
  stale = 4,               ///< the bytes were taken back before they were sent or confirmed
  // The connection is gone; Pawl reconnects by itself.
  connection_lost = 20,  ///< the connection ended while the call was under way
  data_lost = 21,        ///< the data endpoint that carried the call's bytes ended
  protocol_error = 22,   ///< the peer broke the wire protocol; the connection was closed
  // Fix the call.
  invalid_argument = 40,
  not_found = 41,
  already_exists = 42,
  failed_precondition = 43,
  permission_denied = 44,
  unauthenticated = 45,
  unimplemented = 46,  ///< no such method, guard or feature at the peer
  too_large = 47,      ///< a named limit was exceeded
  // Give up.
  deadline = 60,
  cancelled = 61,
  aborted = 62,
  // A bug: Pawl's, or the handler's.
  internal = 80,
  handler_threw = 81,  ///< an exception left a handler
  corrupt = 82,        ///< a checksum did not match
};

/// The code's name as printed and logged: "ok", "deadline", "stale", …; "unknown" for a number
/// that is not in the list.
std::string_view code_name(Code code);

/// Whether the method's handler ran at the peer. Only `no` may be retried for any method; the
/// others only where the method is declared idempotent.
enum class Ran : std::uint8_t { no = 0, unknown = 1, yes = 2 };

std::string_view ran_name(Ran ran);

/// The outcome of anything that can fail: 16 bytes, cheap to move, no allocation when the text is
/// a literal. Any thread; a Status is a value.
class [[nodiscard]] Status {
 public:
  /// Success.
  constexpr Status() noexcept = default;

  /// A failure with a fixed sentence. `sentence` must be a literal (it is not copied): what
  /// failed, and the remedy.
  constexpr Status(Code code, const char* sentence, Ran ran = Ran::no,
                   std::int32_t native = 0) noexcept
      : code_(code), ran_(ran), native_(native), text_(sentence) {}

  /// A failure with a sentence made for this case (allocates; not for hot paths): what failed, on
  /// which peer, device or file, which limit, what to do.
  static Status with_detail(Code code, std::string detail, Ran ran = Ran::no,
                            std::int32_t native = 0);

  Status(const Status& other) noexcept;
  Status(Status&& other) noexcept
      : code_(other.code_),
        ran_(other.ran_),
        owned_(std::exchange(other.owned_, false)),
        native_(other.native_),
        text_(std::exchange(other.text_, nullptr)) {}
  Status& operator=(const Status& other) noexcept;
  Status& operator=(Status&& other) noexcept;
  ~Status() {
    if (owned_) release();
  }

  [[nodiscard]] constexpr bool ok() const noexcept { return code_ == Code::ok; }
  explicit constexpr operator bool() const noexcept { return ok(); }
  [[nodiscard]] constexpr Code code() const noexcept { return code_; }
  [[nodiscard]] constexpr Ran ran() const noexcept { return ran_; }
  /// errno, ibv status or another number of the layer below; 0 = none.
  [[nodiscard]] constexpr std::int32_t native() const noexcept { return native_; }
  /// The sentence; empty for success. Valid as long as this Status (and its copies) lives.
  [[nodiscard]] std::string_view what() const noexcept;

  /// The same failure, with what is known about the handler.
  [[nodiscard]] Status with_ran(Ran ran) const&;
  [[nodiscard]] Status with_ran(Ran ran) &&;

  /// True if the code says that another try may succeed and running the method again does no
  /// harm: the handler did not run, or the method is idempotent.
  [[nodiscard]] bool retryable(bool method_is_idempotent = false) const noexcept;

  /// "deadline (ran: unknown): no answer within 50 ms from 10.0.0.1:7000".
  [[nodiscard]] std::string to_string() const;

 private:
  void release() noexcept;

  Code code_ = Code::ok;
  Ran ran_ = Ran::no;
  bool owned_ = false;  // text_ is a counted Detail, not a literal
  std::int32_t native_ = 0;
  const void* text_ = nullptr;
};
static_assert(sizeof(Status) == 16);

}  // namespace pawl
