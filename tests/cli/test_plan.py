"""`fsdp2 plan`: against runs of fsdp2-train on 2 and 4 ranks, against the parameters that PyTorch counts, and its errors."""

import json
import pathlib
import resource
import subprocess
import sys
import time
import unittest

import torch
from cli import FSDP2, ROOT, CliTest, run_fsdp2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "host"))
from host import CONFIG, HostTest

LAYERS = 'strategy = "full_shard"\nwrap = { policy = "transformer", layer_classes = ["Block"] }'


class Forks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.jit.wait(torch.jit.fork(layer, x))
        return x


class AgainstRuns(HostTest):
    """Bytes of each step and of the parameters, to the byte."""

    def planned(self, world, *sets):
        sets = [word for text in sets for word in ("--set", text)]
        done = run_fsdp2(
            "plan", "--model", "model.pt", "--config", "train.toml", "--world", world, "--optimizer", "sgd_momentum",
            "--json", *sets, folder=self.folder,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_bytes_and_memory(self):
        for world in (2, 4):
            for sets in ([], ['strategy="shard_grad_op"'], ["reshard_after_forward=true"], ['strategy="no_shard"'],
                         ['layout="per_parameter"']):  # fmt: skip
                with self.subTest(world=world, sets=sets):
                    steps, summary = self.train("--nproc", str(world), sets=[f"fsdp.{one}" for one in sets])
                    plan = self.planned(world, *sets)
                    # Before the first step there was an evaluation, which left kept units whole.
                    self.assertGreater(len(steps), 2)
                    for step in steps[1:]:
                        self.assertEqual(step["all_gather_bytes"], plan["traffic"]["all_gather"]["bytes"])
                        self.assertEqual(step["reduce_scatter_bytes"], plan["traffic"]["reduce_scatter"]["bytes"])
                    self.assertEqual(summary["shard_bytes"], plan["memory"]["parameters"])


class FromModels(CliTest):
    def export(self, module, name="model.pt"):
        torch.jit.script(module).save(self.folder / name)
        return self.folder / name

    def test_counts_are_pytorchs(self):
        model = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0)
        total = sum(p.numel() * 4 for p in model.parameters())
        plan = self.json_of("plan", "--model", self.export(model), "--world", 3)
        self.assertEqual(plan["parameter_bytes"], total)
        names = {p["name"]: p["shape"] for unit in plan["units"] for p in unit["parameters"]}
        self.assertEqual(names, {name: list(p.shape) for name, p in model.named_parameters()})
        self.assertEqual(plan["mesh"], {"replicate": 1, "shard": 3})

    def test_ignored_modules_count_whole(self):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
        plan = self.json_of("plan", "--model", self.export(model), "--world", 2, "--set", 'ignored_modules=["1"]')
        self.assertEqual(plan["ignored_parameters"], ["1.weight", "1.bias"])
        self.assertEqual(plan["memory"]["ignored"], (8 * 4 + 4) * 4 * 4)  # itself, its gradient and AdamW's two

    def test_a_model_that_cannot_be_sharded(self):
        frozen = torch.jit.freeze(torch.jit.script(torch.nn.Linear(2, 2)).eval())
        frozen.save(self.folder / "frozen.pt")
        done = self.run_fsdp2("plan", "--model", "frozen.pt", "--world", 2, status=1)
        self.assertIn("torch.jit.freeze", done.stderr)

    def test_units_in_forks_are_refused_as_by_shard(self):
        model = self.export(Forks())
        layers = ("--set", 'wrap={policy="transformer", layer_classes=["Linear"]}')
        done = self.run_fsdp2("plan", "--model", model, "--world", 2, *layers, status=1)
        self.assertRegex(done.stderr, "unit `layers.0` runs inside torch.jit.fork.*: it cannot be one; leave class `Linear` out")
        plan = self.json_of("plan", "--model", model, "--world", 2, "--memory", "1KiB", status=1)
        self.assertNotIn("Linear", json.dumps(plan["limit"]))

    def test_files_that_are_none(self):
        self.write("notes.txt", "no archive")
        torch.save({"a": torch.ones(2)}, self.folder / "state.pt")
        for name, part in (("gone.pt", "gone.pt"), ("notes.txt", "not a TorchScript"), ("state.pt", "not a TorchScript")):
            self.assertIn(part, self.run_fsdp2("plan", "--model", name, "--world", 2, status=1).stderr)


class FromShapes(CliTest):
    def test_seventy_billion_on_sixteen_thousand_ranks(self):
        """In about two seconds and one GiB; the bytes by the formula of the model's own table."""
        config = self.write("c.toml", '[fsdp]\nwrap = { policy = "transformer", layer_classes = ["LlamaDecoderLayer"] }')
        command = [FSDP2, "plan", "--shapes", ROOT / "samples/configs/llama_70b.toml", "--config", config, "--world", "16384",
                   "--nodes", "2048", "--json"]  # fmt: skip
        before = time.monotonic()
        plan = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
        seconds = time.monotonic() - before
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        layer = 8192 * 8192 * 2 + 1024 * 8192 * 2 + 3 * 28672 * 8192 + 2 * 8192
        total = 80 * layer + 2 * 128256 * 8192 + 8192
        self.assertEqual(total, 70_553_706_496)  # what Meta's own count of Llama 3 70B is
        self.assertEqual(plan["parameter_bytes"], total * 4)
        self.assertLess(plan["memory"]["parameters"], total * 4 / 16384 * 1.01)
        self.assertEqual(plan["traffic"]["all_gather"]["collectives"], 161)
        self.assertLess(peak, 1.0, "GiB")
        self.assertLess(seconds, 20)  # a tenth of it when nothing else runs

    def shapes(self):
        return self.write("shapes.toml", '[[module]]\npath = "b.{0..3}"\nclass = "Block"\nparameters.w = [1024, 1024]\n')

    def plan(self, *arguments, status=0):
        return self.run_fsdp2("plan", "--shapes", self.shapes(), "--world", 8, *arguments, status=status)

    def test_a_plan_that_fits(self):
        self.assertIn("fits into 1.0 GiB", self.plan("--memory", "1GiB").stdout)

    def test_a_plan_that_does_not_says_what_would(self):
        """And each one comes to what is said of it, when it is done."""
        starts = (
            [],
            ['strategy="shard_grad_op"'],
            ['strategy="no_shard"'],
            ['strategy="hybrid_shard_zero2"', "mesh.replicate=2"],
            ['strategy="hybrid_shard"', "mesh={ replicate = 4, shard = 2 }"],
            ['layout="per_parameter"', "reshard_after_forward=true"],
        )
        for start in starts:
            start_sets = [word for one in start for word in ("--set", one)]
            arguments = ["plan", "--shapes", self.shapes(), "--memory", "13MiB"]
            plan = self.json_of(*arguments, "--world", 8, *start_sets, status=1)
            self.assertFalse(plan["limit"]["fits"])
            self.assertTrue(any(one["fits"] for one in plan["limit"]["alternatives"]), start)
            for one in plan["limit"]["alternatives"]:
                with self.subTest(start=start, changes=one["changes"]):
                    world = 8
                    sets = list(start_sets)
                    for change in one["changes"]:
                        if change.startswith("--world "):
                            world = int(change.split()[1])
                        else:
                            sets += ["--set", change]
                    changed = self.json_of(*arguments, "--world", world, *sets, status=0 if one["fits"] else 1)
                    self.assertEqual(changed["limit"]["peak"], one["peak"])

    def test_a_wrap_policy_is_among_what_would_fit(self):
        shapes = ROOT / "samples/configs/llama_70b.toml"
        plan = self.json_of("plan", "--shapes", shapes, "--world", 256, "--memory", "80GiB", status=1)
        changes = [change for one in plan["limit"]["alternatives"] if one["fits"] for change in one["changes"]]
        self.assertIn("LlamaDecoderLayer", " ".join(changes))
        sets = [word for change in changes for word in ("--set", change)]
        self.json_of("plan", "--shapes", shapes, "--world", 256, "--memory", "80GiB", *sets)

    def test_activations_count(self):
        self.plan("--memory", "1GiB", "--activations", "2GiB", status=1)

    def test_time(self):
        arguments = ["--nodes", 2, "--bandwidth", "1GB/s", "--network", "100MB/s", "--flops", "1T", "--tokens", "4096"]
        seconds = json.loads(self.plan("--json", *arguments).stdout)["seconds"]
        # One unit, the root, whole until backward: a gather and a reduction, seven eighths of which a rank sends over the network.
        self.assertAlmostEqual(seconds["communicating"], 2 * (4 * 2**22 * 7 / 8 / 1e8 + 20e-6))
        self.assertAlmostEqual(seconds["computing"], 6 * 4 * 1024 * 1024 * 4096 / 1e12)
        self.assertGreaterEqual(seconds["total"], seconds["computing"])
        self.assertIn("a step takes about", self.plan(*arguments).stdout)

    def test_alike_units_share_a_line(self):
        policy = ("--set", 'wrap.policy="every"')
        self.assertIn("b.0 .. b.3", self.plan(*policy).stdout)
        self.assertIn("\nb.2 ", self.plan("--all", *policy).stdout)

    def test_mistakes(self):
        for arguments, status, part in (
            (["--nodes", "3"], 2, "8 ranks do not divide into 3 nodes"),
            (["--memory", "80 potatoes"], 2, "is not a size, like 80GiB"),
            (["--bandwidth", "1GB/s", "--nodes", "2"], 2, "--network"),
            (["--flops", "1T"], 2, "--tokens"),
            (["--network", "1GB/s"], 2, "--bandwidth"),
            (["--latency", "1us"], 2, "--bandwidth"),
            (["--optimizer", "adamv"], 2, "adamw"),
            (["--model", "model.pt"], 2, "--model"),
            (["--wrold", "8"], 2, "Did you mean --world?"),
            (["--set", 'strategy="ful_shard"'], 1, "full_shard"),
            (["--set", "wrap.polisy=every"], 1, "did you mean `wrap.policy`?"),
            (["--set", 'wrap.policy="transformer"', "--set", 'wrap.layer_classes=["Blok"]'], 1, "did you mean `Block`?"),
            (["--set", "mesh.shard=3"], 1, "does not divide the 8 ranks"),
            (["--set", 'strategy="hybrid_shard"'], 1, "mesh.shard"),
            (["--config", "gone.toml"], 1, "gone.toml"),
        ):
            with self.subTest(arguments):
                done = self.plan(*arguments, status=status)
                self.assertIn(part, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_an_option_is_suggested_only_for_a_misspelt_one(self):
        self.assertIn("Did you mean --world?", self.plan("--wrold", "8", status=2).stderr)
        for arguments in (["--memory", "80 potatoes"], ["--memory", "0"], ["--optimizer", "adamx"], ["--bandwidth", "0"]):
            self.assertNotIn("Did you mean", self.plan(*arguments, status=2).stderr)

    def test_amounts_without_an_end(self):
        done = self.plan("--bandwidth", "1GB/s", "--latency", "1e308s", status=2)
        self.assertIn("make no step that ends", done.stderr)

    def test_what_the_configuration_had_to_say(self):
        self.write("host.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_use_orig_params: true\n"
                   "  fsdp_auto_wrap_policy: NO_WRAP\n")  # fmt: skip
        self.write("own.toml", '[fsdp]\nversion = 2\nconfig = "host.yaml"\n')
        said = self.run_fsdp2("plan", "--shapes", self.shapes(), "--world", 8, "--config", "own.toml").stderr
        self.assertIn("warning: ", said)
        config = self.json_of("plan", "--shapes", self.shapes(), "--world", 8, "--config", "own.toml")["config"]
        self.assertIn("fsdp_use_orig_params", config["warning"])
        self.assertTrue(any("accelerate" in note for note in config["notes"]))

    def test_errors_for_programs(self):
        error = self.json_of("plan", "--shapes", self.write("s.toml", "modul = 1"), "--world", 2, status=1)["error"]
        self.assertEqual((error["line"], error["nearest"], error["code"]), (1, "module", "config"))
        self.assertTrue(error["file"].endswith("s.toml"))


if __name__ == "__main__":
    unittest.main()
