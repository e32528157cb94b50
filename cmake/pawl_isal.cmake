# SPDX-License-Identifier: Apache-2.0
# pawl::isal, Intel's ISA-L: CRC32C. Debian: libisal-dev.

find_path(PAWL_ISAL_INCLUDE_DIR isa-l/crc.h)
find_library(PAWL_ISAL_LIBRARY isal)
mark_as_advanced(PAWL_ISAL_INCLUDE_DIR PAWL_ISAL_LIBRARY)
if(NOT PAWL_ISAL_INCLUDE_DIR OR NOT PAWL_ISAL_LIBRARY)
  message(FATAL_ERROR "isa-l was not found; on Debian: apt-get install libisal-dev")
endif()
add_library(pawl-isal INTERFACE IMPORTED GLOBAL)
add_library(pawl::isal ALIAS pawl-isal)
target_include_directories(pawl-isal SYSTEM INTERFACE ${PAWL_ISAL_INCLUDE_DIR})
target_link_libraries(pawl-isal INTERFACE ${PAWL_ISAL_LIBRARY})
