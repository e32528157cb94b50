// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <memory>
#include <vector>

#include "model.h"
#include "writer.h"

namespace pawl::codegen {
namespace {

std::string without_proto(const std::string& name) {
  constexpr std::string_view kSuffix = ".proto";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) {
    if (!text.empty()) text += '\n';
    text += sentence;
  }
  return text;
}

}  // namespace

std::uint64_t Generator::GetSupportedFeatures() const { return FEATURE_PROTO3_OPTIONAL; }

bool Generator::Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                         google::protobuf::compiler::GeneratorContext* context,
                         std::string* error) const {
  if (!parameter.empty()) {
    *error = "protoc-gen-pawl takes no parameters, but got `" + parameter + "`";
    return false;
  }
  std::vector<std::string> sentences;
  const FileModel model = read_file(*file, sentences);
  if (!sentences.empty()) {
    *error = joined(sentences);
    return false;
  }
  if (model.services.empty()) return true;
  const std::string base = without_proto(file->name());
  const std::unique_ptr<google::protobuf::io::ZeroCopyOutputStream> stream(
      context->Open(base + ".pawl.h"));
  google::protobuf::io::Printer printer(stream.get(), '$');
  write_header(model, base + ".pb.h", printer);
  return true;
}

}  // namespace pawl::codegen
