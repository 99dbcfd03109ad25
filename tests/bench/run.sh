#!/usr/bin/env bash
# Sets up what is missing, builds, and compares with PyTorch's fully_shard: ratios of step time and peak memory. Not a test.
set -euo pipefail
cd "$(dirname "$0")/../.."
. cmake/bootstrap.sh

build release
exec "$PWD/.venv/bin/python" tests/bench/compare.py "$@"
