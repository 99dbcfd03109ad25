"""Prints runs of fsdp2-train side by side, from their --metrics files: the first is unsharded, the others must be the same
training.

    compare_runs.py build/quickstart/unsharded.jsonl build/quickstart/full_shard.jsonl ...

Fails when the losses differ by more than rounding, or when held-out accuracy did not rise by 20 points.
"""
import json
import pathlib
import sys
from dataclasses import dataclass

LOSS_TOLERANCE = 2e-5
POINTS = 0.20


@dataclass
class Run:
    name: str  # of its file
    steps: list
    summary: dict

    @classmethod
    def read(cls, path):
        *steps, last = map(json.loads, pathlib.Path(path).read_text().splitlines())
        return cls(pathlib.Path(path).stem, steps, last["summary"])

    @property
    def losses(self):
        return [step["loss"] for step in self.steps]

    def worst_rank(self, key):
        return max(rank[key] for rank in self.summary["memory"])

    def gap(self, other):
        """The largest difference of losses."""
        return max(abs(a - b) for a, b in zip(self.losses, other.losses, strict=True))


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


def percent(score):
    return f"{100 * score['accuracy']:.1f} %"


def main(paths):
    runs = [Run.read(path) for path in paths]
    plain, *sharded = runs
    row = ("{:<34}" + "{:>16}" * len(runs)).format
    print(row("", *(run.name for run in runs)))
    count = len(plain.losses)
    for i in sorted({0, 1, 2, *range(9, count, 10), count - 1}):
        print(row(f"loss of step {i + 1}", *(f"{run.losses[i]:.6f}" for run in runs)))
    for moment in ("before", "after"):
        print(row(f"held-out accuracy {moment}", *(percent(run.summary[f"held_out_{moment}"]) for run in runs)))
    print(row("median step", *(f"{run.summary['median_step_ms']:.0f} ms" for run in runs)))
    for name, key in (("parameters at rest, a rank", "shard_bytes"), ("whole at most, a rank", "unsharded_peak_bytes"),
                      ("peak RSS over start, a rank", "peak_rss_over_start_bytes")):
        print(row(name, *(mebibytes(run.worst_rank(key)) for run in runs)))

    gap = max(plain.gap(run) for run in sharded)
    print(f"losses differ by at most {gap:.1e}")
    assert gap <= LOSS_TOLERANCE, "a sharded run is another training"
    for run in sharded:
        gain = run.summary["held_out_after"]["accuracy"] - run.summary["held_out_before"]["accuracy"]
        assert gain >= POINTS, f"held-out accuracy of {run.name} rose by {100 * gain:.1f} points only"


if __name__ == "__main__":
    main(sys.argv[1:])
