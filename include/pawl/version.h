// SPDX-License-Identifier: Apache-2.0
// The one place where the version is written: the build, the command and the packages read it here.
#pragma once

#define PAWL_VERSION_MAJOR 0
#define PAWL_VERSION_MINOR 1
#define PAWL_VERSION_PATCH 0

#define PAWL_VERSION_TEXT_(x) #x
#define PAWL_VERSION_TEXT(x) PAWL_VERSION_TEXT_(x)

namespace pawl {

/// The version of the headers that this program was compiled with, e.g. "0.1.0".
inline constexpr const char* kVersion = PAWL_VERSION_TEXT(PAWL_VERSION_MAJOR) "."  //
    PAWL_VERSION_TEXT(PAWL_VERSION_MINOR) "."                                      //
    PAWL_VERSION_TEXT(PAWL_VERSION_PATCH);

}  // namespace pawl

#undef PAWL_VERSION_TEXT
#undef PAWL_VERSION_TEXT_
