// SPDX-License-Identifier: Apache-2.0
// EXPECT-OK
#include <string>
#include <vector>

#include "pawl/task.h"

struct Options {
  int limit = 0;
};
struct Aggregate {
  std::string name;
};
class Owner {
 public:
  explicit Owner(std::string given) : name(std::move(given)) {}
  std::string name;
};
struct Service {  // an aggregate itself: the object is not copied
  std::string name;
  pawl::Task<int> get(Owner owner, Options options, const Aggregate& a, Aggregate& b) {
    co_return static_cast<int>(owner.name.size() + a.name.size() + b.name.size()) + options.limit;
  }
  pawl::Task<void> none() const { co_return; }
};
pawl::Task<pawl::Status> strings(std::string a, std::vector<std::string> b) {
  static_cast<void>(a);
  static_cast<void>(b);
  co_return pawl::Status();
}
