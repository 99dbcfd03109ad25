#!/usr/bin/env bash
# The unit and rank tests under ASan and UBSan, on the plugin's own objects: its library cannot be opened by a program without
# the sanitizers' runtime. Not a part of tests/run.sh: it compiles the plugin and these tests once more.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/bootstrap.sh

build asan-ranks test_unit test_comm test_ranks

say "unit and rank tests under ASan and UBSan"
ctest --preset asan-ranks --timeout 2400
