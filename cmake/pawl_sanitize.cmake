# SPDX-License-Identifier: Apache-2.0
# Address or thread sanitizer on everything; the undefined one is per library (pawl_target.cmake),
# since it costs compile time and its findings in tests and generated code are of no interest.

if(PAWL_SANITIZE STREQUAL "address" OR PAWL_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=${PAWL_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PAWL_SANITIZE})
elseif(NOT PAWL_SANITIZE STREQUAL "")
  message(FATAL_ERROR "PAWL_SANITIZE is '${PAWL_SANITIZE}': choose address, thread or nothing")
endif()
if(PAWL_SANITIZE OR PAWL_SANITIZE_UNDEFINED)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code confuses the flow analysis of g++.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

# Everything tells libFuzzer which edges it took; only the fuzzers have libFuzzer's main.
if(PAWL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "PAWL_FUZZ needs clang: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
