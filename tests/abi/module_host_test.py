"""The host with a torch::nn::Module: two ranks of MPI train as one rank does, and save a whole module.

module_host_test.py MPIRUN MODULE_HOST PLUGIN
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch

MPIRUN, HOST, PLUGIN = sys.argv[1:4]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = torch.nn.ModuleList(Block() for _ in range(3)), torch.nn.Linear(32, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train_in_python(ranks):
    """The same run of the plain model, all ranks' batches in one process."""
    torch.manual_seed(0)
    # LibTorch's C++ modules draw the same numbers in the order in which they are made: the head before the blocks.
    made = Model.__new__(Model)
    torch.nn.Module.__init__(made)
    head = torch.nn.Linear(32, 4)
    made.blocks, made.head = torch.nn.ModuleList(Block() for _ in range(3)), head
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2, weight_decay=1e-2)
    losses = []
    for step in range(20):
        total = 0.0
        optimizer.zero_grad()
        for rank in range(ranks):
            torch.manual_seed(100 * step + rank)
            data = torch.randn(16, 32)
            loss = torch.nn.functional.mse_loss(made(data), data[:, :4]) / ranks
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    return made, losses


class ModuleHost(unittest.TestCase):
    def check(self, strategy, ranks):
        with tempfile.TemporaryDirectory() as folder:
            config = os.path.join(folder, "train.toml")
            with open(config, "w") as file:
                file.write(f'[fsdp]\nstrategy = "{strategy}"\n')
            done = subprocess.run([MPIRUN, "-n", str(ranks), "--oversubscribe", HOST, PLUGIN, config], cwd=folder, text=True,
                                  capture_output=True, timeout=60, env={**os.environ, **AS_ROOT})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            losses = [float(value) for value in re.findall(r"^step \d+ loss (\S+)$", done.stdout, re.M)]
            saved = torch.jit.load(os.path.join(folder, "trained.pt")).state_dict()
        model, wanted = train_in_python(ranks)
        self.assertEqual(len(losses), 20, done.stdout)
        for step, (ours, plain) in enumerate(zip(losses, wanted)):
            self.assertAlmostEqual(ours, plain, delta=2e-5, msg=f"step {step}")
        for name, tensor in model.state_dict().items():
            self.assertLess((saved[name] - tensor).abs().max().item(), 1e-4, name)

    def test_full_shard_on_two_ranks(self):
        self.check("full_shard", 2)

    def test_shard_grad_op_on_three_ranks(self):
        self.check("shard_grad_op", 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
