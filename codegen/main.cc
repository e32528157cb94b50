// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/compiler/plugin.h>

#include "generator.h"

int main(int argc, char** argv) {
  const pawl::codegen::Generator generator;
  return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
