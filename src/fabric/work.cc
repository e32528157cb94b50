// SPDX-License-Identifier: Apache-2.0
#include "fabric/work.h"

namespace pawl::fabric {

std::string_view completion_status_name(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::success:
      return "success";
    case CompletionStatus::flushed:
      return "flushed";
    case CompletionStatus::local_error:
      return "local_error";
    case CompletionStatus::remote_access:
      return "remote_access";
    case CompletionStatus::remote_operation:
      return "remote_operation";
    case CompletionStatus::retry_exceeded:
      return "retry_exceeded";
    case CompletionStatus::receiver_not_ready:
      return "receiver_not_ready";
    case CompletionStatus::bind_error:
      return "bind_error";
  }
  return "unknown";
}

}  // namespace pawl::fabric
