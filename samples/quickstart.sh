#!/usr/bin/env bash
# The whole way in a few minutes: a pretrained model on real text, fine-tuned in shards on two ranks by a C++ host, checked
# against the same training without shards, drawn, and loaded back in Python. Alone on a fresh Debian 12 machine as root.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/bootstrap.sh

build release fsdp2_plugin fsdp2-train

out=build/quickstart
config=samples/configs/quickstart.toml
train=build/release/bin/fsdp2-train
python=.venv/bin/python
export PYTHONDONTWRITEBYTECODE=1
mkdir -p $out

if [ ! -e $out/minilm.pt ] || [ -n "$(find samples/exporters -name '*.py' -newer $out/minilm.pt)" ]; then
  say "exporting MiniLM with a fresh head, and the text of the licences"
  $python samples/exporters/licence_text.py --out $out
  $python samples/exporters/minilm_classifier.py --data $out/train.pt --classes 7 --out $out/minilm.pt
fi

say "unsharded, one process, the batches of two ranks"
$train --config $config --unsharded --nproc 2 --metrics $out/unsharded.jsonl
say "shard_grad_op, two ranks"
$train --config $config --nproc 2 --set fsdp.strategy=shard_grad_op --metrics $out/shard_grad_op.jsonl
say "full_shard, two ranks"
$train --config $config --nproc 2 --metrics $out/full_shard.jsonl --save $out/fine_tuned.pt

say "side by side"
runs=($out/unsharded.jsonl $out/shard_grad_op.jsonl $out/full_shard.jsonl)
$python samples/exporters/compare_runs.py "${runs[@]}"
say "$out/fine_tuned.pt, loaded in Python"
$python samples/exporters/check_fine_tuned.py --folder $out
say "the runs in one picture"
$python samples/exporters/draw_runs.py --out $out/runs.png "${runs[@]}"
