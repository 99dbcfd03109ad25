"""samples/tinyllama_v0: the export, and its training on two ranks against the plain module. Two layers instead of eight."""
import pathlib
import subprocess
import sys
import unittest

from host import HostTest

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "samples" / "tinyllama_v0"


class TinyLlama(HostTest):
    def test_three_steps(self):
        model = self.folder / "tinyllama.pt"
        subprocess.run([sys.executable, SAMPLE / "export.py", "--out", model, "--layers", "2"], check=True, timeout=300)
        run = {"config": str(SAMPLE / "train.toml"),
               "sets": [f"model.script={model}", "train.steps=3", "train.batch_size=2", "data.synthetic.sequence=16"]}
        plain, plain_summary = self.train("--unsharded", "--nproc", "2", **run)
        sharded, summary = self.train("--nproc", "2", **run)
        self.assertEqual(len(sharded), 3)
        for a, b in zip(plain, sharded, strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-5)
        self.assertLess(sharded[-1]["loss"], sharded[0]["loss"])
        self.assertLess(summary["shard_bytes"], 0.51 * plain_summary["parameter_bytes"])


if __name__ == "__main__":
    unittest.main()
