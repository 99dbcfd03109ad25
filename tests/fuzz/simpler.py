"""From a case that fails to the smallest that still does."""
from draw import CHOICES, settled

SIMPLEST = {name: next(iter(values)) for name, values in CHOICES.items() if name not in ("wrapping", "freezing")}


def changed(case):
    """Cases that lack one thing of `case`; not all of them fit together."""
    def without(**changes):
        return {**case, **changes}

    yield without(**SIMPLEST)
    yield without(**{**SIMPLEST, "world": case["world"], "strategy": case["strategy"], "replicate": case["replicate"]})
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
    for name, value in SIMPLEST.items():
        yield without(**{name: value})


def simpler(case):
    return [other for other in map(settled, changed(case)) if other != case]


def smallest(case, fault, faults_of):
    """The last of a chain of ever simpler cases that all fail. `faults_of`: cases -> the fault of each, or ""."""
    while True:
        candidates = simpler(case)
        failing = [(c, f) for c, f in zip(candidates, faults_of(candidates)) if f]
        if not failing:
            return case, fault
        case, fault = failing[0]
