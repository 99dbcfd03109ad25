"""The engine against PyTorch's own fully_shard: the same models, data and ranks, in one run, by turns.

    bash tests/bench/run.sh [--rounds 5] [--steps 10] [--shapes small,tiny-deep] [--readme]

Prints ratios (below 1: ours is less), each the median of the rounds with the least and the greatest. --readme also puts
them into README.md. Both sides train a Llama of transformers (eager attention, random weights) with AdamW over Gloo, one
thread a rank, full_shard with the decoder layers as units; the peer in eager Python, ours as TorchScript in fsdp2-train.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from torch.distributed.fsdp import fully_shard

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANKS = 2
MIB = 2**20


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    batch: int  # of a rank
    length: int


SHAPES = {
    "tinyllama-v0": Shape(32000, 64, 256, 8, 16, 4, 128),
    "small": Shape(8192, 512, 1376, 8, 8, 2, 128),
    "tiny-deep": Shape(1001, 64, 256, 24, 4, 4, 32),
}


class LogitsOnly(torch.nn.Module):
    """Tracing wants a module that returns tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, return_dict=False)[0]


def make_model(shape):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False, use_cache=False, attn_implementation="eager")
    return LogitsOnly(transformers.LlamaForCausalLM(config))


def resident_bytes(field="VmRSS"):
    with open("/proc/self/status") as status:
        return int(re.search(rf"{field}:\s+(\d+) kB", status.read()).group(1)) * 1024


def peer_rank(rank, shape, steps, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    start = resident_bytes()
    model = make_model(shape)
    for layer in model.model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    times = []
    for _ in range(steps):
        ids = torch.randint(0, shape.vocabulary, (shape.batch, shape.length), generator=generator)
        begin = time.perf_counter()
        logits = model(ids)
        # As transformers' own loss, and ours: cutting the scores would copy them.
        targets = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-100)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, shape.vocabulary), targets.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.barrier()
        times.append((time.perf_counter() - begin) * 1e3)
    if rank == 0:
        result = {"ms": statistics.median(times[2:]), "bytes": resident_bytes("VmHWM") - start}
        pathlib.Path(folder, "peer.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def peer(name, steps):
    """In a process of its own, so that no round starts from what another has left."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "--peer", name, "--steps", str(steps), "--folder", folder], check=True)
        return json.loads(pathlib.Path(folder, "peer.json").read_text())


def prepare_ours(shape, steps, folder):
    warnings.simplefilter("ignore")  # what tracing makes constant does not matter at one shape
    ids = torch.randint(shape.vocabulary, (shape.batch, shape.length))
    torch.jit.trace(make_model(shape), ids, check_trace=False).save(folder / "model.pt")
    (folder / "train.toml").write_text(f"""
[model]
script = "model.pt"
[data]
synthetic = {{ vocab = {shape.vocabulary}, sequence = {shape.length}, samples = {shape.batch * RANKS * steps} }}
[train]
loss = "causal_lm"
optimizer = "adamw"
lr = 1e-3
steps = {steps}
batch_size = {shape.batch}
threads = 1
[fsdp]
strategy = "full_shard"
wrap = {{ policy = "transformer", layer_classes = ["LlamaDecoderLayer"] }}
""")


def ours(folder):
    metrics = folder / "metrics.jsonl"
    subprocess.run([ROOT / "build/release/bin/fsdp2-train", "--config", folder / "train.toml", "--nproc", str(RANKS),
                    "--metrics", metrics], check=True, stdout=subprocess.DEVNULL)
    summary = json.loads(metrics.read_text().splitlines()[-1])["summary"]
    return {"ms": summary["median_step_ms"], "bytes": summary["peak_rss_over_start_bytes"]}


def rounds_of(name, rounds, steps):
    """[(ours, peer)], by turns."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prepare_ours(SHAPES[name], steps, folder)
        return [(ours(folder), peer(name, steps)) for _ in range(rounds)]


def ratios(pairs, key):
    each = [mine[key] / theirs[key] for mine, theirs in pairs]
    return f"{statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f})"


def row(name, pairs):
    median = lambda side, key: statistics.median(pair[side][key] for pair in pairs)
    return (f"| {name} | {median(1, 'ms'):.0f} ms | {median(0, 'ms'):.0f} ms | {ratios(pairs, 'ms')} | "
            f"{median(1, 'bytes') / MIB:.0f} MiB | {median(0, 'bytes') / MIB:.0f} MiB | {ratios(pairs, 'bytes')} |")


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*:\s*(.+)", info.read())
    return f"{os.cpu_count()} cores of {model.group(1).strip() if model else platform.machine()}"


def put_into_readme(text):
    path = ROOT / "README.md"
    body = (f"<!-- benchmark begin -->\n## Against PyTorch's fully_shard\n\n{text}\n\nMade by `bash tests/bench/run.sh "
            "--readme`; the shapes are in tests/bench/compare.py.\n<!-- benchmark end -->")
    path.write_text(re.sub(r"<!-- benchmark begin -->.*<!-- benchmark end -->", lambda _: body, path.read_text(), flags=re.S))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if args.peer:
        mp.spawn(peer_rank, (SHAPES[args.peer], args.steps, args.folder), nprocs=RANKS)
        return
    lines = [f"{RANKS} ranks on {machine()}, {datetime.date.today()}, torch {torch.__version__.split('+')[0]}, Gloo, medians "
             f"of {args.rounds} runs by turns (least and greatest ratio):", "",
             "| model | step, fully_shard | step, ours | ratio | peak memory over start, fully_shard | ours | ratio |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name in args.shapes.split(","):
        lines.append(row(name, rounds_of(name, args.rounds, args.steps)))
        print(lines[-1], flush=True)
    text = "\n".join(lines)
    print(text)
    if args.readme:
        put_into_readme(text)


if __name__ == "__main__":
    main()
