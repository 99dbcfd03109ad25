#!/usr/bin/env bash
# exports_test.sh <plugin> <build folder> <scratch folder>: what the linker made of the library, as built and as installed.
set -euo pipefail
plugin=$1 build=$2 scratch=$3

fail() { echo "exports_test: $*" >&2; exit 1; }

check() {
  local names
  names=$(nm -D --defined-only "$1" | awk '{print $NF}' | LC_ALL=C sort | tr '\n' ' ')
  [ "$names" = "fsdp2_plugin_get_api fsdp2_plugin_manifest " ] || fail "$1 exports: $names"
  if nm -D --defined-only "$1" | awk '{print $2}' | grep -q u; then fail "$1 has unique symbols, which pin it"; fi
  readelf -d "$1" | grep -q NODELETE || fail "$1 can be unloaded: compiled graphs would keep dangling operators"
}

check "$plugin"

rm -rf "$scratch"
cmake --install "$build" --prefix "$scratch" >/dev/null
installed=$(find "$scratch" -name libfsdp2_plugin.so)
[ -n "$installed" ] || fail "nothing was installed"
check "$installed"
if readelf -d "$installed" | grep -E 'RUNPATH|RPATH'; then fail "$installed could bring a LibTorch of its own"; fi
for header in plugin.h extension.h plugin.hpp mpi.h optimizer.hpp launch_environment.hpp detail/library.hpp; do
  [ -n "$(find "$scratch" -path "*/fsdp2/$header")" ] || fail "$header was not installed"
done

# A host outside the tree, by find_package: in C, so that it needs no LibTorch of its own.
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$scratch/host"
cat >"$scratch/host/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES C CXX)
find_package(fsdp2_plugin 0.1 REQUIRED)
add_executable(host "$here/c_host.c")
target_link_libraries(host PRIVATE fsdp2::plugin_headers)
file(WRITE "\${CMAKE_BINARY_DIR}/library" "\${fsdp2_plugin_LIBRARY_DIR}/libfsdp2_plugin.so")
CMAKE
cmake -S "$scratch/host" -B "$scratch/host/build" -DCMAKE_PREFIX_PATH="$scratch" >/dev/null
cmake --build "$scratch/host/build" >/dev/null
libtorch=$(readelf -d "$plugin" | sed -n 's/.*RUNPATH.*\[\(.*\)\]/\1/p')
LD_LIBRARY_PATH=$libtorch "$scratch/host/build/host" "$(cat "$scratch/host/build/library")" return >/dev/null
