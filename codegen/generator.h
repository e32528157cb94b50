// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/compiler/code_generator.h>

#include <cstdint>
#include <string>

namespace pawl::codegen {

/// protoc-gen-pawl: writes X.pawl.h for each X.proto that has services. Takes no parameters.
class Generator final : public google::protobuf::compiler::CodeGenerator {
 public:
  [[nodiscard]] std::uint64_t GetSupportedFeatures() const override;
  bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                google::protobuf::compiler::GeneratorContext* context,
                std::string* error) const override;
};

}  // namespace pawl::codegen
