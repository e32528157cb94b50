// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <google/protobuf/compiler/cpp/names.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "names.h"
#include "pawl/options.pb.h"

namespace pawl::codegen {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::compiler::cpp::QualifiedClassName;

/// Members of the generated classes and of their bases, which methods cannot be called like.
constexpr std::array kTaken = std::to_array<std::string_view>({"methods", "handle", "channel"});

/// Collects sentences, each with its place: "demo.proto:12: demo.Blocks/Get: …".
class Errors {
 public:
  Errors(const FileDescriptor& file, std::vector<std::string>& sentences)
      : file_(file), sentences_(sentences) {}

  template <class Descriptor>
  void add(const Descriptor& where, const std::string& name, const std::string& sentence) {
    google::protobuf::SourceLocation location;
    std::string place = file_.name();
    if (where.GetSourceLocation(&location)) {
      place += ":" + std::to_string(location.start_line + 1);
    }
    sentences_.push_back(place + ": " + name + ": " + sentence);
  }
  void add(const std::string& sentence) { sentences_.push_back(file_.name() + ": " + sentence); }

 private:
  const FileDescriptor& file_;
  std::vector<std::string>& sentences_;
};

Bulk bulk_of(const MethodDescriptor& method) {
  switch (method.options().GetExtension(pawl::bulk)) {
    case BulkOption::UPLOAD:
      return Bulk::upload;
    case BulkOption::DOWNLOAD:
      return Bulk::download;
    default:
      return Bulk::none;
  }
}

bool idempotent(const MethodDescriptor& method) {
  using google::protobuf::MethodOptions;
  return method.options().GetExtension(pawl::idempotent) ||
         method.options().idempotency_level() != MethodOptions::IDEMPOTENCY_UNKNOWN;
}

MethodModel read_method(const MethodDescriptor& method) {
  MethodModel model;
  model.descriptor = &method;
  model.name = snake_case(method.name());
  model.wire_name = method.service()->full_name() + "/" + method.name();
  model.request = QualifiedClassName(method.input_type());
  model.reply = QualifiedClassName(method.output_type());
  model.bulk = bulk_of(method);
  model.one_way = method.options().GetExtension(pawl::one_way);
  model.idempotent = idempotent(method);
  return model;
}

void check_method(const MethodModel& model, Errors& errors) {
  const MethodDescriptor& method = *model.descriptor;
  const auto refuse = [&](const std::string& sentence) {
    errors.add(method, model.wire_name, sentence);
  };
  if (method.client_streaming() || method.server_streaming()) {
    refuse(
        "Pawl has no streaming rpcs. For large data use `option (pawl.bulk)`, up to 1024 segments "
        "a call; for a long answer, calls with a cursor in the request; for events, calls back to "
        "the caller (Call::caller)");
  }
  if (model.one_way && model.bulk != Bulk::none) {
    refuse(
        "(pawl.one_way) and (pawl.bulk) exclude each other: lent memory is given back by the "
        "answer. Let the method return an empty message instead of being one-way");
  }
  if (model.one_way && method.output_type()->field_count() != 0) {
    refuse("(pawl.one_way) has no answer, so nobody would see the fields of " +
           method.output_type()->full_name() + ": return google.protobuf.Empty");
  }
  if (is_keyword(model.name)) {
    refuse("in C++ it would be called `" + model.name + "`, which is a keyword: rename the method");
  }
  for (const std::string_view taken : kTaken) {
    if (model.name != taken) continue;
    refuse("in C++ it would be called `" + model.name +
           "`, which the generated classes use for themselves: rename the method");
  }
}

/// The C++ name `name` in the file's package, if a message, an enum or the like has it already.
void check_class_name(const ServiceDescriptor& service, const std::string& name, Errors& errors) {
  const FileDescriptor& file = *service.file();
  const std::string full_name = file.package().empty() ? name : file.package() + "." + name;
  const FileDescriptor* other = file.pool()->FindFileContainingSymbol(full_name);
  if (other == nullptr) return;
  const bool plain_service = file.pool()->FindServiceByName(full_name) != nullptr &&
                             !other->options().cc_generic_services();
  if (plain_service) return;  // protobuf writes no C++ for it
  errors.add(service, service.full_name(),
             "its class `" + name + "` would have the name of " + full_name + " in " +
                 other->name() + ": rename one of them");
}

void check_service(const ServiceModel& model, Errors& errors) {
  const ServiceDescriptor& service = *model.descriptor;
  for (const char* suffix : {"Service", "Client", "Methods"}) {
    check_class_name(service, model.stem + suffix, errors);
  }
  std::map<std::string, const MethodModel*> names;
  for (const MethodModel& method : model.methods) {
    check_method(method, errors);
    const auto [other, is_new] = names.emplace(method.name, &method);
    if (!is_new) {
      errors.add(*method.descriptor, method.wire_name,
                 "in C++ it would be called `" + method.name + "`, like " +
                     other->second->wire_name + ": rename one of them");
    }
  }
}

void check_package(const FileDescriptor& file, Errors& errors) {
  std::string_view rest = file.package();
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    if (is_keyword(part)) {
      errors.add("part `" + std::string(part) + "` of package " + file.package() +
                 " is a keyword of C++: rename it");
    }
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
}

void check_stems(const FileModel& model, Errors& errors) {
  std::map<std::string, const ServiceModel*> stems;
  for (const ServiceModel& service : model.services) {
    const auto [other, is_new] = stems.emplace(service.stem, &service);
    if (is_new) continue;
    errors.add(*service.descriptor, service.descriptor->full_name(),
               "its class would be called `" + service.stem + "Service`, like that of " +
                   other->second->descriptor->full_name() + ": rename one of them");
  }
}

}  // namespace

FileModel read_file(const FileDescriptor& file, std::vector<std::string>& sentences) {
  FileModel model;
  model.descriptor = &file;
  model.cpp_namespace = namespace_of(file.package());
  Errors errors(file, sentences);
  if (file.service_count() != 0) check_package(file, errors);
  for (int i = 0; i < file.service_count(); ++i) {
    const ServiceDescriptor& service = *file.service(i);
    ServiceModel& service_model = model.services.emplace_back();
    service_model.descriptor = &service;
    service_model.stem = service_stem(service.name());
    for (int j = 0; j < service.method_count(); ++j) {
      service_model.methods.push_back(read_method(*service.method(j)));
    }
    check_service(service_model, errors);
  }
  check_stems(model, errors);
  return model;
}

}  // namespace pawl::codegen
