// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace pawl::codegen {

enum class Bulk { none, upload, download };

/// What is to be written for a method.
struct MethodModel {
  const google::protobuf::MethodDescriptor* descriptor = nullptr;
  std::string name;       ///< snake_case
  std::string wire_name;  ///< "demo.Blocks/Get"
  std::string request;    ///< "::demo::GetRequest"
  std::string reply;
  Bulk bulk = Bulk::none;
  bool one_way = false;
  bool idempotent = false;
};

/// What is to be written for a service: classes <stem>Methods, <stem>Service, <stem>Client.
struct ServiceModel {
  const google::protobuf::ServiceDescriptor* descriptor = nullptr;
  std::string stem;
  std::vector<MethodModel> methods;
};

struct FileModel {
  const google::protobuf::FileDescriptor* descriptor = nullptr;
  std::string cpp_namespace;  ///< "demo::v1"; empty without a package
  std::vector<ServiceModel> services;
};

/// Reads a file. What Pawl cannot do is added to `errors`, one sentence each with its place; then
/// the model is not to be used.
FileModel read_file(const google::protobuf::FileDescriptor& file, std::vector<std::string>& errors);

}  // namespace pawl::codegen
