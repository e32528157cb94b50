// SPDX-License-Identifier: Apache-2.0
#include "writer.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace pawl::codegen {
namespace {

using google::protobuf::io::Printer;
using Variables = std::map<std::string, std::string>;

/// The comments of a .proto as docstring lines and an empty one. A backslash at a line's end would
/// continue it.
template <class Descriptor>
void write_comments(const Descriptor& descriptor, Printer& printer) {
  google::protobuf::SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return;
  std::string_view text =
      location.leading_comments.empty() ? location.trailing_comments : location.leading_comments;
  if (text.empty()) return;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t last = line.find_last_not_of(" \t\r\\");
    line = last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
    const char* blank = line.empty() || line.front() == ' ' ? "" : " ";
    printer.Print("///$blank$$line$\n", "blank", blank, "line", std::string(line));
  }
  printer.Print("///\n");
}

/// "demo.Blocks/Get: download, idempotent"
std::string summary(const MethodModel& method) {
  std::string words;
  const auto add = [&](const char* word) {
    words += words.empty() ? ": " : ", ";
    words += word;
  };
  if (method.bulk == Bulk::upload) add("upload");
  if (method.bulk == Bulk::download) add("download");
  if (method.one_way) add("one-way");
  if (method.idempotent) add("idempotent");
  return method.wire_name + words;
}

void write_method_comments(const MethodModel& method, Printer& printer) {
  write_comments(*method.descriptor, printer);
  printer.Print("/// $summary$\n", "summary", summary(method));
}

void write_methods(const ServiceModel& service, Printer& printer) {
  printer.Print(
      "/// The methods of $service$: names, hashes, directions.\n"
      "struct $stem$Methods {\n",
      "service", service.descriptor->full_name(), "stem", service.stem);
  printer.Indent();
  std::string all;
  for (const MethodModel& method : service.methods) {
    const char* direction = method.bulk == Bulk::upload     ? "upload"
                            : method.bulk == Bulk::download ? "download"
                                                            : "none";
    printer.Print(
        "static constexpr ::pawl::Method $name$ = ::pawl::make_method(\n"
        "    \"$wire$\", ::pawl::BulkDirection::$direction$,\n"
        "    /*is_idempotent=*/$idempotent$, /*is_one_way=*/$one_way$);\n",
        "name", method.name, "wire", method.wire_name, "direction", direction, "idempotent",
        method.idempotent ? "true" : "false", "one_way", method.one_way ? "true" : "false");
    all += (all.empty() ? "" : ", ") + method.name;
  }
  printer.Print("static constexpr ::std::array<::pawl::Method, $count$> kAll{$all$};\n", "count",
                std::to_string(service.methods.size()), "all", all);
  printer.Outdent();
  printer.Print("};\n\n");
}

Variables variables_of(const ServiceModel& service, const MethodModel& method) {
  return {{"stem", service.stem},
          {"name", method.name},
          {"request", method.request},
          {"reply", method.reply}};
}

void write_handler(const ServiceModel& service, const MethodModel& method, Printer& printer) {
  Variables variables = variables_of(service, method);
  variables["answer"] = method.one_way ? "::pawl::Status" : "::pawl::Result<" + method.reply + ">";
  variables["bulk"] = method.bulk == Bulk::upload     ? ", ::pawl::Upload& in"
                      : method.bulk == Bulk::download ? ", ::pawl::Download& out"
                                                      : "";
  write_method_comments(method, printer);
  printer.Print(variables,
                "virtual ::pawl::Task<$answer$> $name$(\n"
                "    ::pawl::Call& call, const $request$& request$bulk$) = 0;\n\n");
}

void write_dispatch(const ServiceModel& service, Printer& printer) {
  printer.Print(
      "[[nodiscard]] ::std::span<const ::pawl::Method> methods() const final {\n"
      "  return $stem$Methods::kAll;\n"
      "}\n"
      "::pawl::Operation<::pawl::Result<::pawl::Payload>> handle(\n"
      "    ::std::size_t index, [[maybe_unused]] ::pawl::Call& call,\n"
      "    [[maybe_unused]] ::std::span<const ::std::byte> request,\n"
      "    [[maybe_unused]] ::pawl::Upload& in, [[maybe_unused]] ::pawl::Download& out) final {\n",
      "stem", service.stem);
  printer.Indent();
  for (std::size_t i = 0; i < service.methods.size(); ++i) {
    const MethodModel& method = service.methods[i];
    Variables variables = variables_of(service, method);
    variables["index"] = std::to_string(i);
    variables["bulk"] = method.bulk == Bulk::upload     ? ", in"
                        : method.bulk == Bulk::download ? ", out"
                                                        : "";
    printer.Print(variables,
                  "if (index == $index$) {\n"
                  "  return ::pawl::proto::serve(\n"
                  "      $stem$Methods::$name$, *this, &$stem$Service::$name$, call, "
                  "request$bulk$);\n"
                  "}\n");
  }
  printer.Print("return ::pawl::proto::no_such_method(index);\n");
  printer.Outdent();
  printer.Print("}\n");
}

void write_service(const ServiceModel& service, Printer& printer) {
  write_comments(*service.descriptor, printer);
  printer.Print(
      "/// To be implemented: derive, and give it to Node::serve. Handlers run on the poller of "
      "the\n"
      "/// caller's connection; call and request live until the handler ended.\n"
      "class $stem$Service : public ::pawl::Service {\n"
      " public:\n",
      "stem", service.stem);
  printer.Indent();
  for (const MethodModel& method : service.methods) write_handler(service, method, printer);
  write_dispatch(service, printer);
  printer.Outdent();
  printer.Print("};\n\n");
}

void write_stub(const ServiceModel& service, const MethodModel& method, Printer& printer) {
  Variables variables = variables_of(service, method);
  variables["value"] = method.one_way ? "::pawl::Status"
                       : method.bulk == Bulk::download
                           ? "::pawl::Outcome<::pawl::Pulled<" + method.reply + ">>"
                           : "::pawl::Outcome<" + method.reply + ">";
  variables["function"] = method.one_way ? "send" : "call<" + method.reply + ">";
  variables["parameter"] = method.bulk == Bulk::upload     ? ", ::pawl::Lend lend"
                           : method.bulk == Bulk::download ? ", ::pawl::Into into"
                                                           : "";
  variables["argument"] = method.bulk == Bulk::upload     ? ", ::std::move(lend)"
                          : method.bulk == Bulk::download ? ", ::std::move(into)"
                                                          : "";
  write_method_comments(method, printer);
  printer.Print(variables,
                "::pawl::Operation<$value$> $name$(\n"
                "    const $request$& request$parameter$,\n"
                "    const ::pawl::CallOptions& options = {}) const {\n"
                "  return ::pawl::proto::$function$(\n"
                "      channel_, $stem$Methods::$name$, request$argument$, options);\n"
                "}\n\n");
}

void write_client(const ServiceModel& service, Printer& printer) {
  write_comments(*service.descriptor, printer);
  printer.Print(
      "/// Calls $service$ over a channel. A handle: cheap to copy, any thread. Each function\n"
      "/// encodes the request before it returns; the call starts when the operation does.\n"
      "class $stem$Client {\n"
      " public:\n"
      "  $stem$Client() = default;\n"
      "  explicit $stem$Client(::pawl::Channel channel) : channel_(::std::move(channel)) {}\n\n",
      "service", service.descriptor->full_name(), "stem", service.stem);
  printer.Indent();
  for (const MethodModel& method : service.methods) write_stub(service, method, printer);
  printer.Print("[[nodiscard]] const ::pawl::Channel& channel() const { return channel_; }\n");
  printer.Outdent();
  printer.Print(
      "\n"
      " private:\n"
      "  ::pawl::Channel channel_;\n"
      "};\n\n");
}

}  // namespace

void write_header(const FileModel& file, const std::string& messages_header, Printer& printer) {
  printer.Print(
      "// Generated by protoc-gen-pawl from $file$. Do not edit.\n"
      "#pragma once\n\n"
      "#include <array>\n"
      "#include <cstddef>\n"
      "#include <span>\n"
      "#include <utility>\n\n"
      "#include \"pawl/proto/client.h\"\n"
      "#include \"pawl/proto/server.h\"\n\n"
      "#include \"$messages$\"\n\n",
      "file", file.descriptor->name(), "messages", messages_header);
  if (!file.cpp_namespace.empty()) {
    printer.Print("namespace $namespace$ {\n\n", "namespace", file.cpp_namespace);
  }
  for (const ServiceModel& service : file.services) {
    write_methods(service, printer);
    write_service(service, printer);
    write_client(service, printer);
  }
  if (!file.cpp_namespace.empty()) {
    printer.Print("}  // namespace $namespace$\n", "namespace", file.cpp_namespace);
  }
}

}  // namespace pawl::codegen
