"""What a case of the fuzz is: drawn from its seed, a plain dictionary.

A new feature is a line in CHOICES, or a kind of block in models.py, and the one place that reads it.
"""
import random

from facts import fully_shard_cannot, is_hybrid, is_mixed, keeps, mesh_of
from models import KINDS

# Values and their weights. The first one is the simplest.
CHOICES = {
    "world": {1: 3, 2: 6, 4: 10},
    "strategy": {"full_shard": 6, "shard_grad_op": 4, "no_shard": 3, "hybrid_shard": 7, "hybrid_shard_zero2": 6},
    "replicate": {1: 3, 2: 6, 4: 4},  # of the hybrid strategies
    "reshard_after_forward": {"auto": 3, True: 4, False: 5, 2: 12},
    "layout": {"ragged": 1, "per_parameter": 1},
    "prefetch_forward": {0: 1, 1: 1, 2: 1, 3: 1},
    "prefetch_backward": {0: 1, 1: 1, 2: 1, 3: 1},
    "param": {None: 5, "bfloat16": 3, "float16": 2},
    "reduce": {None: 3, "float32": 2, "bfloat16": 1},
    "output": {None: 3, "float32": 1, "bfloat16": 1},
    "cast_forward_inputs": {True: 1, False: 1},
    "optimizer": {"sgd": 1, "adamw": 1},
    "steps": {2: 1, 3: 1},
    "micro_batches": {1: 1, 2: 1, 3: 1},
    "accumulation": {"reduce each": 3, "no sync": 4, "no all-reduce": 5, "sums end later": 3},
    "divide_factor": {None: 3, 1: 1, 3: 1},
    "clip": {None: 3, 1: 1, 2: 1, "inf": 1},  # the p of the norm
    "evaluation": {None: 2, "before steps": 1},
    "batch": {1: 1, 3: 2, 4: 1},
    "width": {3: 1, 5: 1, 8: 1, 13: 1},
    "hidden": {1: 1, 7: 1, 16: 1},
    "wrapping": {"nothing": 1, "some": 4, "everything": 1},
    "freezing": {"nothing": 2, "some": 1},
}
WRAPPED = {"nothing": 0, "some": 0.5, "everything": 1}  # the chance of each module
FROZEN = {"nothing": 0, "some": 0.4}


def pick(random_state, weights):
    return random_state.choices(list(weights), list(weights.values()))[0]


def draw_block(r, case, inner):
    """`inner`: inside another block, which holds no further ones."""
    kind = pick(r, {name: k.weight for name, k in KINDS.items() if not (inner and k.nests)})
    spec = {"kind": kind}
    if KINDS[kind].nests:
        spec["inner"] = [draw_block(r, case, inner=True) for _ in range(r.randint(1, 2))]
    modules = ["", *KINDS[kind].layers] if KINDS[kind].trains else []
    spec["units"] = [m for m in modules if r.random() < WRAPPED[case["wrapping"]]]
    spec["frozen"] = [m for m in KINDS[kind].layers if r.random() < FROZEN[case["freezing"]]]
    return spec


def draw(seed):
    r = random.Random(seed)
    case = {"seed": seed, **{name: pick(r, weights) for name, weights in CHOICES.items()}}
    case["blocks"] = [draw_block(r, case, inner=False) for _ in range(r.randint(1, 4))]
    case["head_is_unit"] = r.random() < WRAPPED[case["wrapping"]]
    case["block_again"] = r.choice([None, None, *range(len(case["blocks"]))])  # a block that runs once more, at the end
    return settled(case)


def settled(case):
    """Without what does not go with the rest, or makes no difference: the simplest value stands there."""
    case = dict(case)

    def simplest(*names):
        case.update({name: next(iter(CHOICES[name])) for name in names})

    if not is_hybrid(case) or case["world"] % case["replicate"] != 0:
        simplest("replicate")
    rows, ranks_of_a_row = mesh_of(case)
    fits = {"auto": True, True: not keeps(case), False: keeps(case), 2: not keeps(case) and ranks_of_a_row == 4}
    if not fits[case["reshard_after_forward"]]:
        simplest("reshard_after_forward")
    if case["micro_batches"] == 1 or (case["accumulation"] == "no all-reduce" and rows == 1):
        simplest("accumulation")
    if is_mixed(case) and fully_shard_cannot(case):
        simplest("param", "reduce", "output")
    if case["param"] is None:
        simplest("cast_forward_inputs")
    return case
