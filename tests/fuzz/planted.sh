#!/usr/bin/env bash
# Shows that the fuzz finds faults: builds a library with planted ones, in build/planted, and prints the first of 50 seeds
# that finds each.
set -euo pipefail
cd "$(dirname "$0")/../.."
. cmake/bootstrap.sh
say "building a library with planted faults, in build/planted"
# Unoptimised: it is there to be wrong, not to be fast.
cmake -S . -B build/planted -G Ninja -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_UNITY_BUILD=ON -DFSDP2_PLANTED_FAULTS=ON \
  -DFSDP2_UNIT_TESTS=OFF -DFSDP2_SAMPLES=OFF >"$(log planted)" || { cat "$(log planted)" >&2; exit 1; }
cmake --build build/planted -j "$(jobs)" --target fsdp2_plugin fuzz_runner
OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 .venv/bin/python tests/fuzz/planted.py \
  --plugin build/planted/lib/libfsdp2_plugin.so --runner build/planted/bin/fuzz_runner
