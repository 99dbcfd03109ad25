#!/usr/bin/env bash
# What needs a GPU: NCCL, streams, CUDA memory; one GPU is enough. Says so and does nothing where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "not run: no GPU here"
  exit 0
fi
. cmake/bootstrap.sh

build release test_gpu
FSDP2_TEST_MODELS=build/release/test_models exec build/release/bin/test_gpu "$@"
