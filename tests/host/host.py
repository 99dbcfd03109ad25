"""A small scripted model, its data and a configuration in a temporary folder, and a way to run fsdp2-train on them."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch

TRAIN = os.environ["FSDP2_TRAIN"]
PLUGIN = os.environ["FSDP2_PLUGIN"]
VOCAB, WIDTH, ROWS, TOKENS = 61, 32, 64, 12

CONFIG = """[model]
script = "model.pt"

[data]
file = "data.pt"
eval_file = "data.pt"
inputs = ["tokens", "mask"]
target = "label"

[train]
loss = "cross_entropy"
optimizer = "sgd"
lr = 0.05
momentum = 0.9
steps = 6
batch_size = 4
seed = 3
threads = 1

[fsdp]
strategy = "full_shard"
wrap = { policy = "transformer", layer_classes = ["Block"] }
debug.timeout_s = 60
"""


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Classifier(torch.nn.Module):
    """Returns a tuple, as models traced from transformers do."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, WIDTH)
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
        self.head = torch.nn.Linear(WIDTH, 5)

    def forward(self, tokens, mask):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        weights = mask.unsqueeze(-1).to(x.dtype)
        return (self.head((x * weights).sum(1) / weights.sum(1)),)


class LanguageModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, WIDTH)
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
        self.head = torch.nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x)}


class HostTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        torch.manual_seed(0)
        torch.jit.script(Classifier()).save(cls.folder / "model.pt")
        torch.jit.script(LanguageModel()).save(cls.folder / "lm.pt")
        tokens = torch.randint(VOCAB, (ROWS, TOKENS))
        data = {"tokens": tokens, "mask": torch.ones_like(tokens), "label": tokens[:, 0] % 5}
        torch.save(data, cls.folder / "data.pt")
        (cls.folder / "train.toml").write_text(CONFIG)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def command(self, *arguments, config="train.toml", sets=()):
        sets = [word for text in sets for word in ("--set", text)]
        return [TRAIN, "--config", config, "--plugin", PLUGIN, *sets, *arguments]

    def run_host(self, *arguments, environment=None, **keywords):
        return subprocess.run(self.command(*arguments, **keywords), cwd=self.folder, capture_output=True, text=True,
                              timeout=120, env={**os.environ, **(environment or {})})

    def train(self, *arguments, **keywords):
        """The metrics of a run that must succeed: steps and summary."""
        done = self.run_host("--metrics", "metrics.jsonl", *arguments, **keywords)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.metrics("metrics.jsonl")

    def metrics(self, name):
        """Steps and summary of a file of --metrics."""
        lines = [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
        return lines[:-1], lines[-1]["summary"]

    def assert_fails(self, done, *parts):
        self.assertNotEqual(done.returncode, 0, done.stdout)
        for part in parts:
            self.assertIn(part, done.stderr)
