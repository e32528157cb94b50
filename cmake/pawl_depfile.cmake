# SPDX-License-Identifier: Apache-2.0
# cmake -D FILE=x.d -D OUTPUT=x.pb.cc -P pawl_depfile.cmake: names one output in protoc's depfile.
# protoc lists its outputs sorted, and ninja wants the one first that the rule has first.

file(READ ${FILE} text)
string(REGEX REPLACE "^[^:]*:" "" dependencies "${text}")
file(WRITE ${FILE} "${OUTPUT}:${dependencies}")
