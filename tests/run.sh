#!/usr/bin/env bash
# Sets up what is missing, builds, and runs every test. Alone on a fresh Debian 12 machine as root.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/bootstrap.sh

build release

# The plugin must also build where there is no CUDA toolkit: once more with nvcc and its variables hidden.
without_cuda() {
  local folder path=""
  while IFS= read -r -d : folder; do
    [ -n "$folder" ] && [ ! -x "$folder/nvcc" ] && path+=${path:+:}$folder
  done <<<"$PATH:"
  env -u CUDA_HOME -u CUDA_PATH PATH="$path" "$@"
}
say "building libfsdp2_plugin.so alone without CUDA, in build/cpu-only"
# Unoptimised and many files at once: it is there to be built, not to be run.
without_cuda cmake -S . -B build/cpu-only -G Ninja -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_UNITY_BUILD=ON \
  -DFSDP2_TESTS=OFF -DFSDP2_SAMPLES=OFF \
  >"$(log cpu-only)" || { cat "$(log cpu-only)" >&2; exit 1; }
without_cuda cmake --build build/cpu-only -j "$(jobs)" --target fsdp2_plugin
needed=$(readelf -d build/cpu-only/lib/libfsdp2_plugin.so | grep NEEDED)
if grep -iE 'cuda|nccl|cudart' <<<"$needed"; then
  echo "build/cpu-only/lib/libfsdp2_plugin.so depends on CUDA" >&2
  exit 1
fi

build asan

say "tests of the torch-free parts under ASan and UBSan"
ctest --preset asan
say "tests"
# Four at a time, of which tests of ranks count for two: ranks wait for each other as much as they compute.
ctest --preset release --timeout 600 --parallel 4
