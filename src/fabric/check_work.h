// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/fabric.h"
#include "fabric/work.h"
#include "pawl/status.h"

namespace pawl::fabric {

/// What `post` refuses whatever the state of the endpoint: no bytes, or more bytes or segments
/// than `device` takes. Windows and rooms in queues are the fabric's own business.
Status check_work(const Capabilities& device, const WorkRequest& work);

}  // namespace pawl::fabric
