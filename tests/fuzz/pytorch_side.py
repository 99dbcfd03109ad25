"""PyTorch's side of the fuzz: trains a case as one rank, with fully_shard or unsharded."""
import os

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from draw import frozen_of, fully_shard_cannot, units_of
from models import make_data, make_model

# With the usual epsilon AdamW makes steps of full size of a gradient that is nothing but rounding.
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, eps=1e-3, weight_decay=0.01),
}


def export(case, folder):
    """What the library's side needs: module, data, options."""
    torch.jit.script(make_model(case, frozen_of(case))).save(os.path.join(folder, "model.pt"))
    training = {name: case[name] for name in ("optimizer", "steps", "micro_batches")}
    torch.save({**make_data(case), **training}, os.path.join(folder, "case.pt"))
    units = ", ".join(f'"{path}"' for path in units_of(case))
    with open(os.path.join(folder, "options.toml"), "w") as file:
        file.write(f"[fsdp]\nstrategy = \"{case['strategy']}\"\nlayout = \"{case['layout']}\"\n")
        file.write(f"wrap = {{ policy = \"modules\", modules = [{units}] }}\n" if units else "wrap = { policy = \"none\" }\n")
        file.write("debug.timeout_s = 30\n")


def full(tensor):
    return None if tensor is None else tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def result_of(model, gradients, losses):
    return {
        "losses": torch.tensor(losses),
        "gradients": {name: g.clone() for name, g in gradients.items() if g is not None},
        "parameters": {name: full(p).detach().clone() for name, p in model.named_parameters(remove_duplicate=False)},
    }


def train(case, ranks, model, switch_to=lambda rank: None):
    """`ranks`: those whose samples this process computes; the loss is their mean."""
    data = make_data(case)
    optimizer = OPTIMIZERS[case["optimizer"]](model.parameters())
    losses = {rank: [] for rank in ranks}

    def forward(step, micro, rank):
        switch_to(rank)
        at = (step, micro, rank)
        loss = (model(data["x"][at], data["ids"][at], data["flag"][step, micro]) - data["target"][at]).square().mean()
        losses[rank].append(loss.item())
        return loss

    for step in range(case["steps"]):
        optimizer.zero_grad()
        for micro in range(case["micro_batches"]):
            for rank in ranks:
                (forward(step, micro, rank) / len(ranks)).backward()
        if step == case["steps"] - 1:
            gradients = {name: full(p.grad) for name, p in model.named_parameters(remove_duplicate=False)}
        optimizer.step()
    return {rank: result_of(model, gradients, losses[rank]) for rank in ranks}


def train_sharded(case, rank, mesh):
    model = make_model(case, frozen_of(case))
    keep = {"reshard_after_forward": case["strategy"] == "full_shard"}
    for path in reversed(units_of(case)):
        fully_shard(model.get_submodule(path), mesh=mesh, **keep)
    fully_shard(model, mesh=mesh, **keep)
    return train(case, [rank], model)[rank]


def train_unsharded(case):
    """All ranks' results. Each rank has buffers of its own."""
    model = make_model(case, frozen_of(case))
    buffers = dict(model.named_buffers())
    of_rank = [{name: b.clone() for name, b in buffers.items()} for _ in range(case["world"])]
    now = [None]

    def switch_to(rank):
        if now[0] is not None:
            of_rank[now[0]] = {name: b.clone() for name, b in buffers.items()}
        for name, b in buffers.items():
            b.copy_(of_rank[rank][name])
        now[0] = rank

    return train(case, range(case["world"]), model, switch_to)


def work(case, folder, rank, mesh):
    """One rank of those of the case."""
    if rank == 0:
        export(case, folder)
    if not fully_shard_cannot(case):
        results = {rank: train_sharded(case, rank, mesh)}
    else:
        results = train_unsharded(case) if rank == 0 else {}
    for of, result in results.items():
        torch.save(result, os.path.join(folder, f"pytorch_{of}.pt"))
