# SPDX-License-Identifier: Apache-2.0
# ccache, set so that a clone in another folder hits: paths below the source folder are hashed
# relative to it, and the compiler writes them relative to it.

add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)

find_program(PAWL_CCACHE ccache)
find_program(PAWL_ENV env)
mark_as_advanced(PAWL_CCACHE PAWL_ENV)
if(PAWL_CCACHE AND PAWL_ENV AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness values are what a precompiled header needs: it holds times and defines.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${PAWL_ENV}
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${PAWL_CCACHE})
endif()
