"""The engine against PyTorch's own fully_shard: one model, the same data, the same number of ranks, one run.

    .venv/bin/python tests/bench/compare.py [--ranks 2] [--steps 10] [--readme]

Prints a table of ratios (below 1: ours is less). --readme also puts it into README.md. Both sides train the model of
tests/models/language_model.py, enlarged, with AdamW over Gloo, one thread a rank; the peer in eager Python, ours as
TorchScript in fsdp2-train.
"""
import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "models"))

import language_model  # noqa: E402

VOCABULARY, WIDTH, HEADS, HIDDEN, BLOCKS = 4096, 512, 8, 1408, 8
BATCH, LENGTH = 4, 128


def make_model():
    for name in ("VOCABULARY", "WIDTH", "HEADS", "HIDDEN"):
        setattr(language_model, name, globals()[name])
    torch.manual_seed(0)
    return language_model.LanguageModel(False, BLOCKS)


def resident_bytes(field="VmRSS"):
    with open("/proc/self/status") as status:
        return int(re.search(rf"{field}:\s+(\d+) kB", status.read()).group(1)) * 1024


class Counter:
    """Bytes of whole buffers, as our own counters have them."""

    def __init__(self):
        self.gathered = self.reduced = 0
        gather, reduce = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

        def counting_gather(output, *args, **kwargs):
            self.gathered += output.numel() * output.element_size()
            return gather(output, *args, **kwargs)

        def counting_reduce(output, input, *args, **kwargs):
            self.reduced += input.numel() * input.element_size()
            return reduce(output, input, *args, **kwargs)

        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = counting_gather, counting_reduce


def peer(rank, world, steps, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    counter = Counter()
    start = resident_bytes()
    model = make_model()
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    times = []
    for _ in range(steps):
        ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
        counter.gathered = counter.reduced = 0
        begin = time.perf_counter()
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.barrier()
        times.append((time.perf_counter() - begin) * 1e3)
    if rank == 0:
        result = {"ms": statistics.median(times[2:]), "rss": resident_bytes("VmHWM") - start, "gathered": counter.gathered,
                  "reduced": counter.reduced}
        with open(os.path.join(folder, "peer.json"), "w") as out:
            json.dump(result, out)
    dist.destroy_process_group()


def ours(world, steps, folder):
    torch.jit.script(make_model()).save(os.path.join(folder, "model.pt"))
    config = os.path.join(folder, "train.toml")
    with open(config, "w") as out:
        out.write(f"""
[model]
script = "model.pt"
[data]
synthetic = {{ vocab = {VOCABULARY}, sequence = {LENGTH}, samples = {BATCH * world * steps} }}
[train]
loss = "causal_lm"
optimizer = "adamw"
lr = 1e-3
steps = {steps}
batch_size = {BATCH}
threads = 1
[fsdp]
strategy = "full_shard"
wrap = {{ policy = "transformer", layer_classes = ["Block"] }}
""")
    metrics = os.path.join(folder, "metrics.jsonl")
    train = os.path.join(ROOT, "build", "release", "bin", "fsdp2-train")
    subprocess.run([train, "--config", config, "--nproc", str(world), "--metrics", metrics], check=True,
                   stdout=subprocess.DEVNULL)
    with open(metrics) as file:
        lines = [json.loads(line) for line in file]
    summary, last = lines[-1]["summary"], lines[-2]
    return {"ms": summary["median_step_ms"], "rss": summary["peak_rss_over_start_bytes"],
            "gathered": last["all_gather_bytes"], "reduced": last["reduce_scatter_bytes"]}


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*:\s*(.+)", info.read())
    return f"{os.cpu_count()} cores of {model.group(1).strip() if model else platform.machine()}"


def table(peer_result, our_result, world):
    mib = 2**20
    rows = [("time of a step (median)", "ms", "ms", 1), ("peak memory of rank 0 over its start", "MiB", "rss", mib),
            ("gathered a step", "MiB", "gathered", mib), ("reduced a step", "MiB", "reduced", mib)]
    lines = [f"{world} ranks on {machine()}, {datetime.date.today()}, torch {torch.__version__.split('+')[0]}, Gloo, a decoder of "
             f"{sum(p.numel() for p in make_model().parameters()) / 1e6:.0f} million parameters, {BATCH} x {LENGTH} tokens a rank:",
             "", "| | fully_shard (Python) | fsdp2-plugin (C++) | ratio |", "| --- | ---: | ---: | ---: |"]
    for title, unit, key, scale in rows:
        a, b = peer_result[key] / scale, our_result[key] / scale
        lines.append(f"| {title} | {a:.0f} {unit} | {b:.0f} {unit} | {b / a:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--readme", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        our_result = ours(args.ranks, args.steps, folder)
        mp.spawn(peer, (args.ranks, args.steps, folder), nprocs=args.ranks)
        with open(os.path.join(folder, "peer.json")) as file:
            peer_result = json.load(file)
    text = table(peer_result, our_result, args.ranks)
    print(text)
    if args.readme:
        path = os.path.join(ROOT, "README.md")
        with open(path) as file:
            readme = file.read()
        body = (f"<!-- benchmark begin -->\n## Against PyTorch's fully_shard\n\n{text}\n\n"
                "Made by `.venv/bin/python tests/bench/compare.py --readme`.\n<!-- benchmark end -->")
        readme = re.sub(r"<!-- benchmark begin -->.*<!-- benchmark end -->", lambda _: body, readme, flags=re.S)
        with open(path, "w") as file:
            file.write(readme)


if __name__ == "__main__":
    main()
