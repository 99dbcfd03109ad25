"""PyTorch's own fully_shard on the language models of the tests, with and without mixed precision; writes what it gives.

    python tests/parity/reference.py OUT_FOLDER

Written: every loss of every rank, and for each parameter the full gradient of step 1 and the value after the last step as
norm, sum, a weighted sum and samples; the shapes of the parameters' shards, and bytes of whole buffers that a step moves. C++ makes the same weights and data from integer arithmetic (tests/models/values.py).
"""
import json
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))

from language_model import VOCABULARY, LanguageModel  # noqa: E402
from values import spread_parameters, token_ids  # noqa: E402

STEPS = 20
BATCH = 2
LENGTH = 17
RATE = 0.05
MOMENTUM = 0.9
SAMPLES = 12
POLICIES = {"": MixedPrecisionPolicy(), "bfloat16": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}


def summary(tensor):
    """Numbers that a wrong, permuted or scaled tensor does not share."""
    flat = tensor.detach().double().reshape(-1)
    k = torch.arange(flat.numel(), dtype=torch.int64)
    weights = ((7919 * k) % 1009).double() / 1009 - 0.5
    picked = flat[(k[:SAMPLES] * 7919 + 13) % flat.numel()]
    return {
        "norm": float(f"{flat.norm().item():.9g}"),
        "sum": float(f"{flat.sum().item():.9g}"),
        "weighted": float(f"{(flat * weights).sum().item():.9g}"),
        "samples": [float(f"{value:.9g}") for value in picked.tolist()],
    }


def full(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class Counter:
    """Bytes of whole buffers, padding included."""

    def __init__(self):
        self.gathered = self.reduced = 0
        gather, reduce = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

        def counting_gather(output_tensor, *args, **kwargs):
            self.gathered += output_tensor.nbytes
            return gather(output_tensor, *args, **kwargs)

        def counting_reduce(output, input, *args, **kwargs):
            self.reduced += input.nbytes
            return reduce(output, input, *args, **kwargs)

        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = counting_gather, counting_reduce


def name_of(tied, policy):
    return "_".join(["lm"] + ["tied"] * tied + [policy] * (policy != ""))


def work(rank, world, tied, policy, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(os.path.join(folder, "store"), world), rank=rank, world_size=world)
    counter = Counter()
    model = spread_parameters(LanguageModel(tied))
    for block in model.layers:
        fully_shard(block, mp_policy=POLICIES[policy])
    fully_shard(model, mp_policy=POLICIES[policy])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    shards = {}
    for name, parameter in model.named_parameters():
        shards[name] = [None] * world
        dist.all_gather_object(shards[name], list(parameter.to_local().shape))
    losses = []
    gradients = {}
    moved = {}
    for step in range(STEPS):
        ids = token_ids(step, rank, BATCH, LENGTH, VOCABULARY)
        optimizer.zero_grad()
        logits = model(ids[:, :-1]).float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        loss.backward()
        if step == 0:
            moved = {"gathered": counter.gathered, "reduced": counter.reduced}
            gradients = {name: summary(full(p.grad)) for name, p in model.named_parameters()}
        optimizer.step()
        of_ranks = [None] * world
        dist.all_gather_object(of_ranks, float(f"{loss.item():.9g}"))
        losses.append(of_ranks)
    parameters = {name: summary(full(p)) for name, p in model.named_parameters()}
    if rank == 0:
        result = {
            "torch": torch.__version__,
            "model": name_of(tied, policy),
            "world": world,
            "optimizer": {"kind": "sgd", "rate": RATE, "momentum": MOMENTUM},
            "data": {"steps": STEPS, "batch": BATCH, "length": LENGTH, "vocabulary": VOCABULARY},
            "bytes_of_a_step": moved,
            "shards": shards,
            "losses": losses,
            "gradients": gradients,
            "parameters": parameters,
        }
        with open(os.path.join(folder, "result.json"), "w") as out:
            json.dump(result, out)
    dist.barrier()
    dist.destroy_process_group()


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    runs = [(world, tied, "") for world in (2, 4) for tied in (False, True)]
    runs += [(2, False, policy) for policy in POLICIES if policy]
    for world, tied, policy in runs:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (world, tied, policy, folder), nprocs=world)
            result = f"fully_shard_{name_of(tied, policy)}_{world}.json"
            shutil.move(os.path.join(folder, "result.json"), os.path.join(out, result))
    open(os.path.join(out, "complete"), "w").close()


if __name__ == "__main__":
    main()
