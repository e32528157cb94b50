# SPDX-License-Identifier: Apache-2.0
# What every target of ours gets: C++20, warnings, and for libraries the undefined sanitizer.

# Warnings; -Werror with PAWL_WERROR.
function(pawl_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual -Wsuggest-override
    -Wextra-semi -Wold-style-cast -Wcast-qual -Wformat=2 -Wundef -Wvla
    -Wno-missing-field-initializers)  # {.deadline = 50ms} leaves fields out on purpose
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE
      -Wshadow=local -Wduplicated-cond -Wlogical-op -Wmismatched-tags
      -Wno-interference-size
      -Wno-restrict                   # false with std::string and g++ 12 at -O2
      # Shown, but not fatal, also under a -Werror of whoever includes us: g++ 12 raises these
      # falsely where it inlined a lot.
      -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow
      -Wno-error=stringop-overread -Wno-error=free-nonheap-object
      -Wno-error=mismatched-new-delete)
  else()
    target_compile_options(${target} PRIVATE
      -Wshadow -Wno-missing-designated-field-initializers -Wunused-member-function
      -Wno-gnu-zero-variadic-macro-arguments)
  endif()
  if(PAWL_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

function(pawl_undefined_sanitizer target)
  if(PAWL_SANITIZE_UNDEFINED)
    target_compile_options(${target} PRIVATE -fsanitize=undefined -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=undefined)
  endif()
endfunction()

# pawl_library(name SOURCES files...): a static library of ours, with alias pawl::<rest of name>.
# Without sources it is an interface library. Sets <name>_SCOPE to PUBLIC or INTERFACE.
function(pawl_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ALIAS" "SOURCES")
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    pawl_warnings(${name})
    pawl_undefined_sanitizer(${name})
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_compile_features(${name} ${scope} cxx_std_20)
  if(PAWL_SANITIZE)  # whoever links it needs the sanitizer's runtime
    target_link_options(${name} ${scope} -fsanitize=${PAWL_SANITIZE})
  endif()
  if(arg_ALIAS)
    add_library(${arg_ALIAS} ALIAS ${name})
  endif()
  set(${name}_SCOPE ${scope} PARENT_SCOPE)
endfunction()

# pawl_program(name SOURCES files... LINK libraries...)
function(pawl_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${name} ${arg_SOURCES})
  pawl_warnings(${name})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_link_libraries(${name} PRIVATE ${arg_LINK})
endfunction()

# pawl_glob(out patterns...): files of these patterns, sorted, looked up again at each build.
macro(pawl_glob out)
  file(GLOB ${out} CONFIGURE_DEPENDS ${ARGN})
endmacro()
