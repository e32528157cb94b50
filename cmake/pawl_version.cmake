# SPDX-License-Identifier: Apache-2.0

# Reads MAJOR.MINOR.PATCH from the three #defines of a header into variable `out`.
function(pawl_read_version header out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/${header} lines
       REGEX "#define PAWL_VERSION_[A-Z]+ [0-9]+")
  set(numbers "")
  foreach(part MAJOR MINOR PATCH)
    if(NOT "${lines}" MATCHES "PAWL_VERSION_${part} ([0-9]+)")
      message(FATAL_ERROR "${header}: no PAWL_VERSION_${part}")
    endif()
    list(APPEND numbers ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN numbers "." version)
  set(${out} ${version} PARENT_SCOPE)
endfunction()
