// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pawl::tools {

/// `pawl info`: the version, the fabrics of this build and the limits of this process; gives the
/// exit code.
int run_info(bool json);

}  // namespace pawl::tools
