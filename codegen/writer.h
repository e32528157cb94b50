// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/io/printer.h>

#include <string>

#include "model.h"

namespace pawl::codegen {

/// Writes X.pawl.h. `messages_header`: the path of X.pb.h as it is included.
void write_header(const FileModel& file, const std::string& messages_header,
                  google::protobuf::io::Printer& printer);

}  // namespace pawl::codegen
