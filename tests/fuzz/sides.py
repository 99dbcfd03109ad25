"""Runs both sides of the fuzz, each rank a process."""
import os
import socket
import subprocess
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import pytorch_side
from draw import CHOICES
from facts import is_hybrid, mesh_of

WORLDS = list(CHOICES["world"])


def make_folders(root, cases):
    folders = [os.path.join(root, str(i)) for i in range(len(cases))]
    for folder in folders:
        os.mkdir(folder)
    return folders


def run_pytorch(cases, folders):
    """All cases on one pool of forked ranks; those of a smaller world are the first ones of it."""
    with tempfile.TemporaryDirectory() as meeting:
        ranks = [os.fork() or be_rank(r, cases, folders, meeting) for r in range(max(WORLDS))]
        for pid in ranks:
            os.waitpid(pid, 0)


def mesh_key(case):
    """fully_shard takes rows only where a dimension replicates."""
    rows, ranks_of_a_row = mesh_of(case)
    return (rows, ranks_of_a_row) if is_hybrid(case) or case["strategy"] == "no_shard" else (ranks_of_a_row,)


def be_rank(rank, cases, folders, meeting):
    try:
        torch.set_num_threads(1)
        size = max(WORLDS)
        store = dist.FileStore(os.path.join(meeting, "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        meshes = {}
        for key in sorted({mesh_key(case) for case in cases}):  # all ranks of the pool take part in making one
            ranks = torch.arange(torch.Size(key).numel()).view(key)
            meshes[key] = DeviceMesh("cpu", ranks, mesh_dim_names=("replicate", "shard")[-len(key):])
        for case, folder in zip(cases, folders):
            if rank >= case["world"]:
                continue
            try:
                pytorch_side.work(case, folder, rank, meshes[mesh_key(case)])
            except Exception:
                with open(os.path.join(folder, f"pytorch_{rank}.error"), "w") as file:
                    traceback.print_exc(file=file)
        dist.barrier()
    finally:
        sys.stdout.flush()
        os._exit(0)


def run_library(cases, folders, plugin, runner, environment={}):
    """One program a rank for each world, for all of its cases."""
    for world in WORLDS:
        own = [folder for case, folder in zip(cases, folders) if case["world"] == world]
        if not own:
            continue
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = {**os.environ, **environment, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
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
