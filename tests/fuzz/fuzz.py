"""Random small models, trained by PyTorch in Python and by the library in C++, and compared.

    python tests/fuzz/fuzz.py --plugin LIBRARY --runner PROGRAM [--count N] [--first SEED] [--shrink]
"""
import argparse
import collections
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import draw
import pytorch_side

WORLDS = list(draw.CHOICES["world"])


def run_pytorch(cases, folders):
    """All cases on one pool of forked ranks; those of a smaller world are the first ones of it."""
    with tempfile.TemporaryDirectory() as meeting:
        ranks = [os.fork() or be_rank(r, cases, folders, meeting) for r in range(max(WORLDS))]
        for pid in ranks:
            os.waitpid(pid, 0)


def be_rank(rank, cases, folders, meeting):
    try:
        torch.set_num_threads(1)
        size = max(WORLDS)
        dist.init_process_group("gloo", store=dist.FileStore(os.path.join(meeting, "store"), size), rank=rank, world_size=size)
        groups = {world: dist.new_group(list(range(world))) for world in WORLDS}
        meshes = {w: DeviceMesh.from_group(group, "cpu") for w, group in groups.items() if rank < w}
        for case, folder in zip(cases, folders):
            if rank >= case["world"]:
                continue
            try:
                pytorch_side.work(case, folder, rank, meshes[case["world"]])
            except Exception:
                with open(os.path.join(folder, f"pytorch_{rank}.error"), "w") as file:
                    traceback.print_exc(file=file)
        dist.barrier()
    finally:
        sys.stdout.flush()
        os._exit(0)


def run_library(cases, folders, plugin, runner):
    """One program a rank for each world, for all of its cases."""
    for world in WORLDS:
        own = [folder for case, folder in zip(cases, folders) if case["world"] == world]
        if not own:
            continue
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([runner, plugin, *own], env={**common, "RANK": str(r)}) for r in range(world)]
        for rank in ranks:
            rank.wait()


def result(side, rank, folder):
    """Throws what the side threw."""
    path = os.path.join(folder, f"{side}_{rank}")
    if os.path.exists(path + ".error"):
        with open(path + ".error") as file:
            raise RuntimeError(f"{side} failed on rank {rank}:\n{file.read().strip()}")
    if not os.path.exists(path + ".pt"):
        raise RuntimeError(f"{side} gave no result on rank {rank}; did it die?")
    return torch.load(path + ".pt", weights_only=False)


def compare(case, folder):
    """By torch.testing's own tolerances for float32, those of PyTorch's tests of fully_shard: rtol 1.3e-6, atol 1e-5."""
    for rank in range(case["world"]):
        wanted, given = result("pytorch", rank, folder), result("library", rank, folder)
        torch.testing.assert_close(given["losses"], wanted["losses"], msg=lambda m: f"losses of rank {rank}: {m}")
        for what in ("gradients", "parameters"):
            if set(given[what]) != set(wanted[what]):
                raise AssertionError(f"{what}: the library has {sorted(given[what])}, PyTorch {sorted(wanted[what])}")
            for name in wanted[what]:
                torch.testing.assert_close(given[what][name], wanted[what][name], msg=lambda m: f"{what} {name}: {m}")


def run(cases, args):
    """The fault of each case, "" where there is none."""
    root = tempfile.mkdtemp(prefix="fsdp2_fuzz_")
    folders = [os.path.join(root, str(i)) for i in range(len(cases))]
    for folder in folders:
        os.mkdir(folder)
    faults = []
    run_pytorch(cases, folders)
    run_library(cases, folders, args.plugin, args.runner)
    for case, folder in zip(cases, folders):
        try:
            compare(case, folder)
            faults.append("")
        except Exception as error:
            faults.append(str(error))
    shutil.rmtree(root)
    return faults


def smallest(case, fault, args):
    """The last of a chain of ever simpler cases that all fail."""
    while True:
        candidates = list(draw.simpler(case))
        failing = [(c, f) for c, f in zip(candidates, run(candidates, args)) if f]
        if not failing:
            return case, fault
        case, fault = failing[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest case behind the first fault")
    args = parser.parse_args()

    began = time.monotonic()
    seeds = range(args.first, args.first + args.count)
    cases = [draw.draw(seed) for seed in seeds]
    faults = run(cases, args)

    counts = collections.Counter(feature for case in cases for feature in draw.features(case))
    counts["compared with fully_shard"] = sum(not draw.fully_shard_cannot(case) for case in cases)
    for name in [*draw.every_feature(), "compared with fully_shard"]:
        print(f"{counts[name]:5}  {name}")
    failed = [(case, fault) for case, fault in zip(cases, faults) if fault]
    for case, fault in failed:
        print(f"\nseed {case['seed']}: {json.dumps(case)}\n{fault}")
    print(f"{len(cases) - len(failed)} of {len(cases)} seeds pass, {time.monotonic() - began:.0f} s")
    if failed and args.shrink:
        case, fault = smallest(*failed[0], args)
        print(f"\nthe smallest that fails: {json.dumps(case)}\n{fault}")
    # A run of this size must have met everything; a smaller one may miss some.
    rare = [name for name in draw.every_feature() if counts[name] < 20] if args.count >= 300 else []
    if rare:
        print(f"drawn less than 20 times: {', '.join(rare)}")
    return 1 if failed or rare else 0


if __name__ == "__main__":
    sys.exit(main())
