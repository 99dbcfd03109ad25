#!/usr/bin/env bash
# Random models against PyTorch: run.sh [COUNT [FIRST_SEED]]. Builds what it needs; prints how often each feature was drawn.
set -euo pipefail
cd "$(dirname "$0")/../.."
. cmake/bootstrap.sh
build release fsdp2_plugin fuzz_runner >/dev/null
OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 .venv/bin/python tests/fuzz/fuzz.py --plugin build/release/lib/libfsdp2_plugin.so \
  --runner build/release/bin/fuzz_runner --count "${1:-300}" --first "${2:-0}" --shrink
