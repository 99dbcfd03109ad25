"""Sharded training is the unsharded one, and says so in its metrics."""
import os
import pathlib
import pty
import re
import socket
import subprocess
import sys
import unittest

import torch
from host import CONFIG, ROWS, TRAIN, VOCAB, HostTest

DRAW_RUNS = pathlib.Path(__file__).resolve().parents[2] / "samples" / "exporters" / "draw_runs.py"
STEP_KEYS = {"step", "loss", "step_ms", "samples_per_s", "all_gather_bytes", "reduce_scatter_bytes"}
SUMMARY_KEYS = {"median_step_ms", "peak_rss_over_start_bytes", "unsharded_peak_bytes", "shard_bytes"}
LANGUAGE_MODEL = """[model]
script = "lm.pt"
[data]
synthetic = { vocab = %d, sequence = 10, samples = 40 }
[train]
loss = "causal_lm"
optimizer = "adamw"
lr = 1e-3
steps = 6
batch_size = 4
accumulate = 2
threads = 1
[fsdp]
wrap = { policy = "transformer", layer_classes = ["Block"] }
""" % VOCAB


class Training(HostTest):
    def assert_same_losses(self, plain, sharded):
        self.assertEqual(len(plain), len(sharded))
        for a, b in zip(plain, sharded):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-5)

    def test_strategies_and_metrics(self):
        plain, plain_summary = self.train("--unsharded", "--nproc", "2", "--save", "plain.pt")
        self.assertEqual([m["step"] for m in plain], [1, 2, 3, 4, 5, 6])
        self.assertEqual(plain_summary["shard_bytes"], plain_summary["parameter_bytes"])
        expected = dict(torch.jit.load(self.folder / "plain.pt").named_parameters())
        (self.folder / "metrics.jsonl").rename(self.folder / "unsharded.jsonl")
        for strategy in ("full_shard", "shard_grad_op", "no_shard"):
            with self.subTest(strategy):
                steps, summary = self.train("--nproc", "2", "--save", "out.pt", sets=[f"fsdp.strategy={strategy}"])
                self.assert_same_losses(plain, steps)
                self.assertTrue(all(STEP_KEYS <= m.keys() for m in steps))
                self.assertLessEqual(SUMMARY_KEYS, summary.keys())
                self.assertAlmostEqual(summary["held_out_after"]["loss"], plain_summary["held_out_after"]["loss"], delta=1e-4)
                self.assertEqual(len(summary["predictions"]), ROWS)
                self.assertEqual(summary["predictions"], plain_summary["predictions"])
                self.assertEqual(len(summary["memory"]), 2)
                saved = dict(torch.jit.load(self.folder / "out.pt").named_parameters())
                self.assertEqual(saved.keys(), expected.keys())
                for name, tensor in saved.items():
                    torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-5)
                if strategy != "no_shard":
                    self.assertLess(summary["shard_bytes"], 0.6 * summary["parameter_bytes"])
                    # The first step of shard_grad_op finds the units whole: the evaluation before it kept them.
                    gathered = steps if strategy == "full_shard" else steps[1:]
                    self.assertTrue(all(m["all_gather_bytes"] > 0 for m in gathered))
                    self.assertTrue(all(m["reduce_scatter_bytes"] > 0 for m in steps))
                if strategy == "full_shard":
                    self.assertLess(summary["unsharded_peak_bytes"], summary["parameter_bytes"])
                (self.folder / "metrics.jsonl").rename(self.folder / f"{strategy}.jsonl")
        # The quickstart's picture of such runs.
        files = ["unsharded.jsonl", "shard_grad_op.jsonl", "full_shard.jsonl"]
        subprocess.run([sys.executable, DRAW_RUNS, "--out", "runs.png", *files], cwd=self.folder, check=True)
        self.assertTrue((self.folder / "runs.png").read_bytes().startswith(b"\x89PNG"))

    def accelerate_config(self, fsdp, **changes):
        """accelerate_v2.yaml is what accelerate 1.15.0 writes (ClusterConfig.to_yaml_file)."""
        text = (pathlib.Path(__file__).parent / "accelerate_v2.yaml").read_text()
        for key, value in changes.items():
            text, count = re.subn(rf"(?m)^(\s*{key}:).*$", rf"\1 {value}", text)
            self.assertEqual(count, 1, key)
        self.write("accelerate.yaml", text)
        return self.write("accelerate.toml", CONFIG[:CONFIG.index("[fsdp]")] + "[fsdp]\n" + fsdp)

    def test_five_steps_from_the_yaml_of_accelerate(self):
        plain, _ = self.train("--unsharded", "--nproc", "2", sets=["train.steps=5"])
        for fsdp, changes in (('dialect = "accelerate"\nconfig = "accelerate.yaml"\n', {}),
                              ('version = 2\ndialect = "accelerate"\nconfig = "accelerate.yaml"\n',
                               {"fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD"})):
            with self.subTest(fsdp):
                config = self.accelerate_config(fsdp, **changes)
                steps, _ = self.train("--nproc", "2", config=config, sets=["train.steps=5"])
                self.assert_same_losses(plain, steps)
                self.assertTrue(all(m["all_gather_bytes"] > 0 for m in steps))

    def other_host(self, dialect, name, text):
        """A configuration that leaves all to another host's file."""
        self.write(name, text)
        return self.write(f"{dialect}.toml", CONFIG[:CONFIG.index("[fsdp]")] + '[fsdp]\nwrap = { policy = "transformer", '
                          f'layer_classes = ["Block"] }}\ndialect = "{dialect}"\nconfig = "{name}"\n')

    def test_clipping_of_other_hosts(self):
        """DeepSpeed and torchtitan clip to 1.0 by default: a rate that makes gradients larger than that shows it."""
        sets = ["train.lr=0.5"]
        free, _ = self.train("--unsharded", "--nproc", "2", sets=sets)
        files = {
            "deepspeed": ("ds.json", '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}'),
            "torchtitan": ("titan.toml", '[activation_checkpoint]\nmode = "none"\n[training]\n'
                                         'mixed_precision_param = "float32"\n'),
        }
        for dialect, (name, text) in files.items():
            with self.subTest(dialect):
                config = self.other_host(dialect, name, text)
                plain, _ = self.train("--unsharded", "--nproc", "2", config=config, sets=sets)
                self.assertGreater(max(abs(a["loss"] - b["loss"]) for a, b in zip(free, plain)), 1e-2)
                sharded, _ = self.train("--nproc", "2", config=config, sets=sets)
                self.assert_same_losses(plain, sharded)
                done = self.run_host("--nproc", "2", config=config, sets=sets)
                self.assertIn("`gradient.clip_norm = 1.0` takes effect by `engine.clip_gradients()`", done.stderr)
                self.assertNotIn("has not clipped by a norm", done.stderr)

    def test_clipping_of_gradients_that_are_not_finite(self):
        """As unsharded: the norm is infinite, and training goes on, with losses that are no numbers."""
        sets = ["train.lr=1e30", "fsdp.gradient.clip_norm=1e30", "fsdp.ignored_modules=['blocks\\.1']"]
        for arguments in ([], ["--unsharded"]):
            done = self.run_host("--nproc", "2", *arguments, sets=sets)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_clipping_counts_ignored_modules_and_accumulation(self):
        sets = ["train.lr=0.5", "train.accumulate=2", "fsdp.gradient.clip_norm=0.3"]
        plain, _ = self.train("--unsharded", "--nproc", "2", sets=sets)
        sharded, _ = self.train("--nproc", "2", sets=sets)
        self.assert_same_losses(plain, sharded)
        ignoring, _ = self.train("--nproc", "2", sets=[*sets, "fsdp.ignored_modules=['blocks\\.1']"])
        self.assert_same_losses(plain, ignoring)

    def test_save_follows_links_and_leaves_devices_alone(self):
        (self.folder / "link.pt").symlink_to("target.pt")
        self.train("--save", "link.pt", sets=["train.steps=1"])
        self.assertTrue((self.folder / "link.pt").is_symlink())
        torch.jit.load(self.folder / "target.pt")
        os.mkfifo(self.folder / "pipe")
        reader = subprocess.Popen(["cat", "pipe"], cwd=self.folder, stdout=subprocess.PIPE)
        self.train("--save", "pipe", sets=["train.steps=1"])
        self.assertEqual(len(reader.communicate()[0]), (self.folder / "target.pt").stat().st_size)

    def test_save_to_a_full_disk_is_an_error(self):
        full = self.folder / "full"
        full.symlink_to("/dev/full")
        self.assert_fails(self.run_host("--save", "full", sets=["train.steps=1"]), "--save", "No space left on device")
        self.assertEqual(list(self.folder.glob("*.unfinished")), [])

    def test_version_1_is_not_run_but_says_how(self):
        config = self.accelerate_config('dialect = "accelerate"\nconfig = "accelerate.yaml"\n', fsdp_version=1,
                                        fsdp_reshard_after_forward="FULL_SHARD")
        self.assert_fails(self.run_host("--nproc", "2", config=config), "version = 2", "accelerate.yaml")

    def test_accumulation_and_adamw_on_synthetic_tokens(self):
        config = self.write("lm.toml", LANGUAGE_MODEL)
        plain, _ = self.train("--unsharded", "--nproc", "2", config=config)
        sharded, _ = self.train("--nproc", "2", config=config)
        self.assert_same_losses(plain, sharded)
        self.assertLess(sharded[-1]["loss"], sharded[0]["loss"])

    def test_three_ranks_with_a_remainder_in_the_evaluation(self):
        plain, plain_summary = self.train("--unsharded", "--nproc", "3")
        sharded, summary = self.train("--nproc", "3")
        self.assert_same_losses(plain, sharded)
        self.assertAlmostEqual(plain_summary["held_out_before"]["loss"], summary["held_out_before"]["loss"], delta=2e-5)

    def test_one_rank(self):
        plain, _ = self.train("--unsharded")
        sharded, _ = self.train()
        self.assert_same_losses(plain, sharded)
        self.assertTrue(all(m["all_gather_bytes"] == 0 for m in sharded))

    def test_ranks_of_another_launcher(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        ranks = []
        for rank in range(2):
            environment = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks.append(subprocess.Popen(self.command(), cwd=self.folder, env={**os.environ, **environment},
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertIn("6 steps", outputs[0][0])
        self.assertEqual(outputs[1][0], "")

    def test_plan(self):
        done = self.run_host("--plan", "--nproc", "16384")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("16384 ranks", done.stdout)
        self.assertIn("blocks.2", done.stdout)

    def test_plan_of_the_hybrids(self):
        done = self.run_host("--plan", "--nproc", "4", sets=["fsdp.strategy=hybrid_shard"])
        self.assertIn("4 ranks (1 x 4)", done.stdout, done.stderr)

    def test_ignored_modules_are_trained_by_the_host(self):
        sets = ["fsdp.ignored_modules=['blocks\\.1']"]
        plain, _ = self.train("--unsharded", "--nproc", "2")
        ours, _ = self.train("--nproc", "2", sets=sets)
        self.assert_same_losses(ours, plain)

    def test_progress(self):
        plain = self.run_host("--unsharded")
        self.assertIn("step 6/6  loss", plain.stdout)
        self.assertNotIn("\r", plain.stdout)
        parent, child = pty.openpty()
        subprocess.run(self.command("--unsharded"), cwd=self.folder, stdout=child, timeout=120, check=True)
        os.close(child)
        shown = os.read(parent, 1 << 16).decode()
        os.close(parent)
        self.assertIn("\r[##############################] 6/6  loss", shown)

    def test_the_program_does_not_link_the_plugin(self):
        needed = subprocess.run(["readelf", "-d", TRAIN], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("fsdp2", "".join(line for line in needed.splitlines() if "(NEEDED)" in line))


if __name__ == "__main__":
    unittest.main()
