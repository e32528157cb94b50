# SPDX-License-Identifier: Apache-2.0

find_package(GTest REQUIRED)
include(GoogleTest)

# Where tests find what they need; by environment and not by definition, so that objects are the
# same in every folder.
set(environment
  PAWL_SOURCE_DIR=${PROJECT_SOURCE_DIR}
  PAWL_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  UBSAN_OPTIONS=print_stacktrace=1
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
  TSAN_OPTIONS=second_deadlock_stack=1)

set(libraries pawl::pawl)
if(TARGET pawl-proto)
  list(APPEND libraries pawl::proto)
  pawl_glob(test_protos proto/*.proto)
  if(test_protos)
    add_library(tests_proto STATIC)
    target_link_libraries(tests_proto PUBLIC pawl::proto)
    pawl_generate(TARGET tests_proto PROTOS ${test_protos} BASE ${CMAKE_CURRENT_SOURCE_DIR}/proto)
    list(APPEND libraries tests_proto)
  endif()
endif()
list(APPEND libraries GTest::gtest_main GTest::gmock)

# gtest.h costs more than a second in each file: compiled once, for all programs.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/pch.cc.in "// SPDX-License-Identifier: Apache-2.0\n")
configure_file(${CMAKE_CURRENT_BINARY_DIR}/pch.cc.in ${CMAKE_CURRENT_BINARY_DIR}/pch.cc COPYONLY)
add_library(tests_pch OBJECT ${CMAKE_CURRENT_BINARY_DIR}/pch.cc)
pawl_warnings(tests_pch)
target_link_libraries(tests_pch PRIVATE ${libraries})
target_precompile_headers(tests_pch PRIVATE
  <gtest/gtest.h> <array> <atomic> <chrono> <coroutine> <cstdint> <cstring> <functional> <memory>
  <optional> <random> <span> <string> <string_view> <thread> <vector>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # A time in the header would make each build's differ, and ccache miss.
  target_compile_options(tests_pch PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
endif()

pawl_glob(support_sources support/*.cc)
if(support_sources)
  add_library(tests_support STATIC ${support_sources})
  pawl_warnings(tests_support)
  target_include_directories(tests_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}
                                                  ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tests_support PUBLIC ${libraries})
endif()

file(GLOB folders LIST_DIRECTORIES true CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *)
list(REMOVE_ITEM folders support proto compile examples headers tidy cmake vm fuzz aarch64)
if(NOT TARGET pawl-tools)
  list(REMOVE_ITEM folders tools)
endif()
get_property(verbs_library GLOBAL PROPERTY PAWL_VERBS_LIBRARY)
if(NOT verbs_library)
  list(REMOVE_ITEM folders verbs)  # its cases include verbs headers
endif()
foreach(folder IN LISTS folders)
  pawl_glob(sources ${folder}/*.cc)
  if(NOT sources)
    continue()
  endif()
  set(name test_${folder})
  pawl_program(${name} SOURCES ${sources} LINK ${libraries})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  if(TARGET tests_support)
    target_link_libraries(${name} PRIVATE tests_support)
  endif()
  if(folder STREQUAL "tools")
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})  # "tools/..."
    target_link_libraries(${name} PRIVATE pawl-tools)
  endif()
  target_precompile_headers(${name} REUSE_FROM tests_pch)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  gtest_discover_tests(${name}
    TEST_PREFIX ${folder}.
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    TEST_LIST ${name}_cases
    PROPERTIES LABELS ${folder})
  # A property that is a list does not survive the discovery: set when ctest has the names.
  set(include_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_environment.cmake)
  file(CONFIGURE OUTPUT ${include_file} @ONLY CONTENT
    "set_tests_properties(\${@name@_cases} PROPERTIES ENVIRONMENT \"@environment@\")\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include_file})
endforeach()

# These start programs of the build.
if(TARGET test_unit AND TARGET protoc-gen-pawl)
  add_dependencies(test_unit protoc-gen-pawl)
endif()
foreach(folder tcp)
  if(TARGET test_${folder})
    foreach(program examples pawl-command)
      if(TARGET ${program})
        add_dependencies(test_${folder} ${program})
      endif()
    endforeach()
  endif()
endforeach()
if(TARGET test_tools)
  add_dependencies(test_tools pawl-command)
endif()
