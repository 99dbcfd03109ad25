"""What follows from a case."""
from models import KINDS

PRECISION = ("param", "reduce", "output")  # dtypes of mixed precision


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


def is_hybrid(case):
    return case["strategy"].startswith("hybrid")


def keeps(case):
    """Whether units stay whole after their forward."""
    return case["strategy"] in ("shard_grad_op", "hybrid_shard_zero2", "no_shard")


def mesh_of(case):
    """Rows and ranks of a row: a row shards, a column replicates."""
    rows = case["world"] if case["strategy"] == "no_shard" else case["replicate"]
    return rows, case["world"] // rows


def is_mixed(case):
    return any(case[name] is not None for name in PRECISION)


def ties_over_units(case):
    return any(KINDS[spec["kind"]].tied and set(KINDS[spec["kind"]].layers) & set(spec["units"])
               for _, spec in blocks_of(case))


def unit_changes_its_input(case):
    return any(KINDS[spec["kind"]].changes_input and spec["units"] and "layer" in spec["units"]
               for _, spec in blocks_of(case))


def leaves_out(case):
    return any(KINDS[spec["kind"]].leaves_out for _, spec in blocks_of(case))


def has_a_unit_without_parameters(case):
    """All of them are in units inside it."""
    def inside(spec):
        return all(name in spec["units"] for name in KINDS[spec["kind"]].layers or [""])

    def is_one(spec):
        inner = spec.get("inner")
        parts = [("" in s["units"] or inside(s)) for s in inner] if inner else [inside(spec) and KINDS[spec["kind"]].layers]
        return "" in spec["units"] and all(parts)

    return any(is_one(spec) for _, spec in blocks_of(case))


def fully_shard_cannot(case):
    """Why PyTorch 2.11's fully_shard is no reference, or "". The unsharded model is one then, in float32."""
    if ties_over_units(case):
        return "it trains a weight of two units as two"
    if unit_changes_its_input(case):
        return "autograd refuses a change in place behind its hook of inputs"
    if leaves_out(case) and case["accumulation"] == "no all-reduce":
        return "it loses what waits in a unit that has no gradients in the last pass"
    if leaves_out(case) and case["accumulation"] == "no sync" and is_mixed(case):
        return "it refuses a unit that has not run, and gradients of which some wait in another dtype"
    if has_a_unit_without_parameters(case) and is_mixed(case):
        return "it casts what goes into and out of such a unit, which the library leaves out"
    if case["divide_factor"] is not None and mesh_of(case)[1] == 1 and "float16" == (case["reduce"] or case["param"]):
        return "it divides by the factor before, in place of and after the sum"
    return ""
