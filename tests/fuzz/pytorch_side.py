"""PyTorch's side of the fuzz: trains a case as one rank, with fully_shard or unsharded."""
import os

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from facts import PRECISION, frozen_of, fully_shard_cannot, is_hybrid, is_mixed, keeps, mesh_of, units_of
from models import make_data, make_model

MAX_NORM = 0.1

# With the usual epsilon AdamW makes steps of full size of a gradient that is nothing but rounding.
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, eps=1e-3, weight_decay=0.01),
}

# What is set before each pass.
ACCUMULATION = {
    "reduce each": lambda model, is_last: None,
    "no sync": lambda model, is_last: model.set_requires_gradient_sync(is_last),
    "no all-reduce": lambda model, is_last: model.set_requires_all_reduce(is_last),
    "sums end later": lambda model, is_last: model.set_is_last_backward(is_last),
}


def options(case):
    """As the library reads them."""
    def toml(value):
        return str(value).lower() if isinstance(value, (bool, int, float)) else f'"{value}"'

    units = ", ".join(f'"{path}"' for path in units_of(case))
    given = {
        "strategy": case["strategy"],
        "layout": case["layout"],
        "reshard_after_forward": case["reshard_after_forward"],
        "mesh.replicate": case["replicate"] if is_hybrid(case) else None,
        "prefetch.forward": case["prefetch_forward"],
        "prefetch.backward": case["prefetch_backward"],
        **{f"mixed_precision.{name}": case[name] for name in (*PRECISION, "cast_forward_inputs")},
        "gradient.divide_factor": case["divide_factor"],
        "wrap.policy": "modules" if units else "none",
        "debug.timeout_s": 30,
    }
    lines = [f"{key} = {toml(value)}" for key, value in given.items() if value is not None]
    return "\n".join(["[fsdp]", *lines, *([f"wrap.modules = [{units}]"] if units else [])]) + "\n"


def export(case, folder):
    """What the library's side needs: module, data, options."""
    torch.jit.script(make_model(case, frozen_of(case))).save(os.path.join(folder, "model.pt"))
    training = {name: case[name] for name in ("optimizer", "steps", "micro_batches", "accumulation")}
    training |= {"clip": float(case["clip"] or 0), "max_norm": MAX_NORM, "evaluates": case["evaluation"] is not None}
    torch.save({**make_data(case), **training}, os.path.join(folder, "case.pt"))
    with open(os.path.join(folder, "options.toml"), "w") as file:
        file.write(options(case))


def full(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients_of(model):
    return {name: full(p.grad).clone() for name, p in model.named_parameters(remove_duplicate=False) if p.grad is not None}


def clip(model, p):
    """The norm is that of whole gradients: clip_grad_norm_ of PyTorch 2.11 fails on an empty shard where p is infinite."""
    gradients = [full(q.grad) for q in model.parameters() if q.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, p)
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), MAX_NORM, norm)
    return norm.item()


def train(case, ranks, model, before_pass=lambda is_last: None, after_evaluation=lambda: None, switch_to=lambda rank: None,
          divisor=1):
    """`ranks`: those whose samples this process computes, and adds up the gradients of, over `divisor`."""
    data = make_data(case)
    optimizer = OPTIMIZERS[case["optimizer"]](model.parameters())
    losses = {rank: [] for rank in ranks}
    result = {"norms": []}

    def forward(step, micro, rank):
        switch_to(rank)
        at = (step, micro, rank)
        loss = (model(data["x"][at], data["ids"][at], data["flag"][step, micro]) - data["target"][at]).square().mean()
        losses[rank].append(loss.item())
        return loss

    for step in range(case["steps"]):
        optimizer.zero_grad()
        for micro in range(case["micro_batches"]):
            before_pass(micro == case["micro_batches"] - 1)
            for rank in ranks:
                (forward(step, micro, rank) / divisor).backward()
        if step == 0:
            result["first gradients"] = gradients_of(model)
        if case["clip"]:
            result["norms"].append(clip(model, float(case["clip"])))
        if case["evaluation"]:
            with torch.no_grad():
                for rank in ranks:
                    forward(step, 0, rank)
            after_evaluation()
        if step == case["steps"] - 1:
            result["gradients"] = gradients_of(model)
        optimizer.step()
    result["norms"] = torch.tensor(result["norms"])
    result["parameters"] = {name: full(p).detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}
    return {rank: {"losses": torch.tensor(losses[rank]), **result} for rank in ranks}


def train_sharded(case, rank, mesh):
    model = make_model(case, frozen_of(case))
    dtypes = {f"{name}_dtype": getattr(torch, case[name]) if case[name] else None for name in PRECISION}
    how = {
        "mesh": mesh,
        # To a number of ranks gives the same numbers, and takes groups of its own for each unit.
        "reshard_after_forward": not keeps(case),
        "mp_policy": MixedPrecisionPolicy(**dtypes, cast_forward_inputs=case["cast_forward_inputs"]),
    }
    for path in reversed(units_of(case)):
        fully_shard(model.get_submodule(path), **how)
    fully_shard(model, **how)
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        if case["divide_factor"] is None:
            continue
        unit.set_gradient_divide_factor(case["divide_factor"])
        # Gloo cannot scale in a sum. Where nothing is cut it need not, and the factor would count twice.
        unit.set_force_sum_reduction_for_comms(mesh_of(case)[1] > 1)

    def reshard():  # what a forward without gradients leaves whole, the next forward would take as it is
        for unit in units:
            unit.reshard()

    return train(case, [rank], model, lambda is_last: ACCUMULATION[case["accumulation"]](model, is_last), reshard)[rank]


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

    return train(case, range(case["world"]), model, switch_to=switch_to, divisor=case["divide_factor"] or case["world"])


def terms_of(case):
    """Of each parameter's first gradient, the greatest sum of absolute terms over ranks and passes: what roundings of the
    sum are in proportion to, however much of it cancels."""
    data, terms = make_data(case), {}
    for rank in range(case["world"]):
        model = make_model(case, frozen_of(case))
        for micro in range(case["micro_batches"]):
            at = (0, micro, rank)
            model.zero_grad()
            output = model(data["x"][at], data["ids"][at], data["flag"][0, micro])
            (output - data["target"][at]).square().mean().backward()
            for name, gradient in gradients_of(model).items():
                terms[name] = terms.get(name, 0) + gradient.abs() / (case["divide_factor"] or case["world"])
    return {name: sum_of_terms.max().item() for name, sum_of_terms in terms.items()}


def work(case, folder, rank, mesh):
    """One rank of those of the case."""
    if rank == 0:
        export(case, folder)
    if not fully_shard_cannot(case):
        results = {rank: train_sharded(case, rank, mesh)}
    else:
        results = train_unsharded(case) if rank == 0 else {}
    terms = terms_of(case) if is_mixed(case) else {}
    for of, result in results.items():
        result["terms"] = terms
        torch.save(result, os.path.join(folder, f"pytorch_{of}.pt"))
