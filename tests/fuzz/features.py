"""What the cases of a run had in them, to count."""
from draw import CHOICES
from facts import blocks_of, frozen_of, fully_shard_cannot, is_mixed, mesh_of, ties_over_units, units_of
from models import KINDS

MESHES = ["1x2", "2x1", "1x4", "2x2", "4x1"]


def features(case):
    """Each value of each choice, each kind of block, and what comes of several."""
    found = {f"{name} {case[name]}" for name in CHOICES}
    found |= {f"block {spec['kind']}" for _, spec in blocks_of(case)}
    found.add("mesh {}x{}".format(*mesh_of(case)))
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
    if is_mixed(case):
        found.add("mixed precision")
    if case["world"] > 1:
        found.add("several ranks")
    if not fully_shard_cannot(case):
        found.add("compared with fully_shard")
    return found


def every_feature():
    names = [f"{name} {value}" for name, weights in CHOICES.items() for value in weights]
    names += [f"block {kind}" for kind in KINDS]
    names += [f"mesh {mesh}" for mesh in MESHES]
    return names + ["units inside units", "a block twice", "a unit twice", "a tie over units", "frozen parameters",
                    "mixed precision", "several ranks", "compared with fully_shard"]


def least(feature):
    """How often it must be met in 300 seeds."""
    return 200 if feature == "several ranks" else 20
