"""Draws runs of fsdp2-train side by side, from their --metrics files: memory, losses and throughput. The first is unsharded.

    draw_runs.py --out build/quickstart/runs.png build/quickstart/unsharded.jsonl build/quickstart/full_shard.jsonl ...
"""
import argparse
import statistics

import matplotlib

matplotlib.use("Agg")  # no screen
import matplotlib.pyplot as plt  # noqa: E402
from compare_runs import Run  # noqa: E402

COLOURS = ("#777777", "#e08214", "#2166ac")


def draw_memory(axes, runs):
    for offset, key, label, pattern in ((-0.2, "peak_rss_over_start_bytes", "peak RSS over start", ""),
                                        (0.2, "shard_bytes", "parameters at rest", "//")):
        bars = axes.bar([i + offset for i in range(len(runs))], [run.worst_rank(key) / 2**20 for run in runs], 0.4,
                        color=COLOURS, hatch=pattern, edgecolor="white", label=label)
        axes.bar_label(bars, fmt="%.0f")
    axes.set_title("Memory of a rank (the one with most)")
    axes.set_ylabel("MiB")
    axes.set_xticks(range(len(runs)), [run.name for run in runs])
    legend = axes.legend()
    for handle in legend.legend_handles:
        handle.set_facecolor("#aaaaaa")


def draw_losses(axes, runs):
    """The later ones are thinner, so that those below can be seen."""
    for i, (run, colour) in enumerate(zip(runs, COLOURS, strict=True)):
        axes.plot(range(1, len(run.losses) + 1), run.losses, color=colour, linewidth=2.5 * (len(runs) - i),
                  linestyle="-" if i == 0 else (i, (3, 2)), label=run.name)
    gap = max(runs[0].gap(run) for run in runs[1:])
    axes.set_title(f"Loss; largest difference {gap:.1e}")
    axes.set_xlabel("step")
    axes.legend()


def draw_throughput(axes, runs):
    # The first two steps compile and fill caches.
    rates = [statistics.median(step["samples_per_s"] for step in run.steps[2:]) for run in runs]
    bars = axes.bar([f"{run.name}\n({'1 process' if not run.summary['sharded'] else str(run.summary['ranks']) + ' ranks'})"
                     for run in runs], rates, color=COLOURS)
    axes.bar_label(bars, fmt="%.1f")
    axes.set_title("Throughput, all ranks together (median step)")
    axes.set_ylabel("samples/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("metrics", nargs=len(COLOURS))
    args = parser.parse_args()
    runs = [Run.read(path) for path in args.metrics]
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.8), layout="constrained")
    for draw, part in zip((draw_memory, draw_losses, draw_throughput), axes, strict=True):
        draw(part, runs)
        part.spines[["top", "right"]].set_visible(False)
    figure.savefig(args.out, dpi=120)
    print(f"{args.out}: memory, losses and throughput of {', '.join(run.name for run in runs)}")


if __name__ == "__main__":
    main()
