"""Prints an unsharded and a sharded run of fsdp2-train side by side, from their --metrics files.

Fails when the losses differ by more than rounding, or when held-out accuracy did not rise by 20 points.
"""
import json
import sys

LOSS_TOLERANCE = 2e-5
POINTS = 0.20


def read(path):
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return lines[:-1], lines[-1]["summary"]


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


def percent(score):
    return f"{100 * score['accuracy']:.1f} %"


def main(plain_path, sharded_path):
    (plain, plain_summary), (sharded, sharded_summary) = read(plain_path), read(sharded_path)
    row = "{:<34}{:>16}{:>16}".format
    print(row("", "unsharded", "full_shard"))
    shown = sorted({0, 1, 2, *range(9, len(plain), 10), len(plain) - 1})
    for i in shown:
        print(row(f"loss of step {plain[i]['step']}", f"{plain[i]['loss']:.6f}", f"{sharded[i]['loss']:.6f}"))
    for moment in ("before", "after"):
        scores = [percent(s[f"held_out_{moment}"]) for s in (plain_summary, sharded_summary)]
        print(row(f"held-out accuracy {moment}", *scores))
    print(row("median step", *(f"{s['median_step_ms']:.0f} ms" for s in (plain_summary, sharded_summary))))
    for name, key in (("parameters at rest, a rank", "shard_bytes"), ("whole at most, a rank", "unsharded_peak_bytes"),
                      ("peak RSS over start, a rank", "peak_rss_over_start_bytes")):
        worst = [mebibytes(max(m[key] for m in s["memory"])) for s in (plain_summary, sharded_summary)]
        print(row(name, *worst))

    gaps = [abs(a["loss"] - b["loss"]) for a, b in zip(plain, sharded, strict=True)]
    print(f"losses differ by at most {max(gaps):.1e}")
    assert max(gaps) <= LOSS_TOLERANCE, "the sharded run is another training"
    gain = sharded_summary["held_out_after"]["accuracy"] - sharded_summary["held_out_before"]["accuracy"]
    assert gain >= POINTS, f"held-out accuracy rose by {100 * gain:.1f} points only"


if __name__ == "__main__":
    main(*sys.argv[1:])
