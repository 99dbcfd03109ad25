#!/usr/bin/env bash
# minimal_host_test.sh <torchrun> <save_tiny_model> <minimal_host> <plugin> <scratch folder> <python>
# The README's host on two ranks: the loss falls, and what it saves is a plain module without our operators.
set -euo pipefail
torchrun=$1 save=$2 host=$3 plugin=$4 scratch=$5 python=$6
rm -rf "$scratch" && mkdir -p "$scratch" && cd "$scratch"

"$save" model.pt
printf '[fsdp]\nstrategy = "full_shard"\nwrap = { policy = "every" }\n' > train.toml
"$torchrun" --no-python --standalone --nproc-per-node 2 "$host" "$plugin" model.pt train.toml | tee losses.txt

awk '/^step/ { if (n++ == 0) first = $4; last = $4 }
     END { if (n < 5 || last >= first) { print "the loss did not fall"; exit 1 } }' losses.txt
"$python" - <<'PYTHON'
import torch
before, after = torch.jit.load("model.pt"), torch.jit.load("trained.pt")
assert "fsdp2" not in str(after.inlined_graph), after.inlined_graph
for (name, a), (_, b) in zip(before.named_parameters(), after.named_parameters(), strict=True):
    assert a.shape == b.shape and not torch.equal(a, b), name
PYTHON
