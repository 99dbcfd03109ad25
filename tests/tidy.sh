#!/usr/bin/env bash
# clang-tidy over the given sources, or over those that differ from the last commit. Wants Debian's clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
# clang reads no precompiled header of gcc's.
mkdir -p build/tidy
cmake --preset release -B build/tidy/configured -DCMAKE_UNITY_BUILD=OFF >/dev/null
sed -E 's/ -Winvalid-pch -include [^ ]+//' build/tidy/configured/compile_commands.json >build/tidy/compile_commands.json
files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git diff --name-only HEAD -- '*.cpp')
[ ${#files[@]} -gt 0 ] || { echo "no source has changed"; exit 0; }
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet
