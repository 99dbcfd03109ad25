"""What a case of the fuzz is: drawn from its seed, a plain dictionary.

A new feature is a line in CHOICES, or a kind of block in models.py, and the one place that reads it.
"""
import random

from models import KINDS

# Values and their weights.
CHOICES = {
    "world": {1: 2, 2: 5, 4: 4},
    "strategy": {"full_shard": 3, "shard_grad_op": 2, "no_shard": 1},
    "layout": {"ragged": 1, "per_parameter": 1},
    "optimizer": {"sgd": 1, "adamw": 1},
    "steps": {2: 1, 3: 1},
    "micro_batches": {1: 2, 2: 1, 3: 1},
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
    return case


def blocks_of(case):
    """Every block with its path, parents first."""
    for b, spec in enumerate(case["blocks"]):
        yield f"blocks.{b}", spec
        for i, inner in enumerate(spec.get("inner", [])):
            yield f"blocks.{b}.inner.{i}", inner


def units_of(case):
    """Paths of the modules to wrap, parents first."""
    units = [f"{path}.{name}".rstrip(".") for path, spec in blocks_of(case) for name in spec["units"]]
    return units + ["head"] * case["head_is_unit"]


def frozen_of(case):
    return [f"{path}.{name}" for path, spec in blocks_of(case) for name in spec["frozen"]]


def ties_over_units(case):
    return any(KINDS[spec["kind"]].tied and set(KINDS[spec["kind"]].layers) & set(spec["units"])
               for _, spec in blocks_of(case))


def unit_changes_its_input(case):
    return any(KINDS[spec["kind"]].changes_input and spec["units"] and "layer" in spec["units"]
               for _, spec in blocks_of(case))


def fully_shard_cannot(case):
    """Why PyTorch 2.11's fully_shard is no reference, or "". The unsharded model is one then."""
    if case["strategy"] == "no_shard":
        return "it always shards"
    if ties_over_units(case):
        return "it trains a weight of two units as two"
    if unit_changes_its_input(case):
        return "autograd refuses a change in place behind its hook of inputs"
    return ""


def features(case):
    """What to count: each value of each choice, each kind of block, and what comes of several."""
    found = {f"{name} {case[name]}" for name in CHOICES}
    found |= {f"block {spec['kind']}" for _, spec in blocks_of(case)}
    units = units_of(case)
    if any(a != b and b.startswith(a + ".") for a in units for b in units):
        found.add("units inside units")
    if case["block_again"] is not None:
        found.add("a block twice")
        if any(unit.startswith(f"blocks.{case['block_again']}") for unit in units):
            found.add("a unit twice")
    if ties_over_units(case):
        found.add("a tie over units")
    if frozen_of(case):
        found.add("frozen parameters")
    return found


def every_feature():
    names = [f"{name} {value}" for name, weights in CHOICES.items() for value in weights]
    names += [f"block {kind}" for kind in KINDS]
    return names + ["units inside units", "a block twice", "a unit twice", "a tie over units", "frozen parameters"]


def simpler(case):
    """Cases that lack one thing of `case`, for the search of the smallest that still fails."""
    def without(**changes):
        return {**case, **changes}

    for b in range(len(case["blocks"])):
        again = case["block_again"]
        yield without(blocks=case["blocks"][:b] + case["blocks"][b + 1:],
                      block_again=None if again == b else again - 1 if again is not None and again > b else again)
    for b, spec in enumerate(case["blocks"]):
        rest = lambda changed: without(blocks=case["blocks"][:b] + [changed] + case["blocks"][b + 1:])  # noqa: E731
        if "inner" in spec:
            for i in range(len(spec["inner"]) if len(spec["inner"]) > 1 else 0):
                yield rest({**spec, "inner": spec["inner"][:i] + spec["inner"][i + 1:]})
            for i, inner in enumerate(spec["inner"]):
                for key in ("units", "frozen"):
                    if inner[key]:
                        yield rest({**spec, "inner": [*spec["inner"][:i], {**inner, key: []}, *spec["inner"][i + 1:]]})
        for key in ("units", "frozen"):
            if spec[key]:
                yield rest({**spec, key: []})
    if case["head_is_unit"]:
        yield without(head_is_unit=False)
    if case["block_again"] is not None:
        yield without(block_again=None)
    for name, weights in CHOICES.items():
        first = next(iter(weights))
        if case[name] != first and name not in ("wrapping", "freezing"):
            yield without(**{name: first})
