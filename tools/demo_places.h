// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "pawl/result.h"

namespace pawl::tools {

/// On which fabric, and which device of it, the two processes of the demo work.
struct DemoPlaces {
  std::string server_fabric;  ///< names for NodeOptions::fabric
  std::string client_fabric;
  std::string listen;  ///< where the server listens
  std::string text;    ///< for people: "verbs (server on rxe0, 10.77.0.1; client on rxe1, …)"
};

/// By the name that the user gave. With RDMA the server takes the first usable port, and the client
/// one of another device that can reach it, if there is one. Errors: the fabric is not there.
Result<DemoPlaces> choose_places(std::string_view fabric);

}  // namespace pawl::tools
