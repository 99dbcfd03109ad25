"""samples/strategy_plugin: built with the installed headers alone, and named in the TOML of fsdp2-train."""
import os
import pathlib
import subprocess
import unittest

from host import HostTest

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "samples" / "strategy_plugin"
BLOCK_BYTES = 4 * (2 * 32 + 2 * 4 * 32 * 32 + 4 * 32 + 32)  # of host.Block


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class StrategyPlugin(HostTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix, build = cls.folder / "installed", cls.folder / "strategy"
        run("cmake", "--install", os.environ["FSDP2_BUILD"], "--prefix", prefix)
        run("cmake", "-G", "Ninja", "-S", SAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", build)
        cls.library = build / "libkeep_within.so"

    def sets(self, *more):
        """The sample's file, for the small model."""
        return ["model.script=" + str(self.folder / "lm.pt"), "data.synthetic.vocab=61", "data.synthetic.sequence=10",
                "train.steps=3", "train.batch_size=2", f'fsdp.plugins=["{self.library}"]',
                'fsdp.wrap.layer_classes=["Block"]', *more]

    def test_links_nothing_but_the_languages_libraries(self):
        needed = [line for line in run("readelf", "-d", self.library).splitlines() if "NEEDED" in line]
        self.assertFalse([line for line in needed if "torch" in line or "c10" in line or "fsdp2" in line])
        source = (SAMPLE / "keep_within.cpp").read_text().splitlines()
        self.assertLess(len(source), 100)

    def test_plan_without_ranks(self):
        done = self.run_host("--plan", "--nproc", "64", config=str(SAMPLE / "train.toml"),
                             sets=self.sets("fsdp.strategy_options.keep_mib=0.07"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sample.keep_within, layout ragged, 64 ranks", done.stdout)
        self.assertIn("note: 2 of 3 units stay whole", done.stdout)
        reshards = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith(("blocks.", "(root)"))]
        self.assertEqual(reshards, ["no", "no", "yes", "no"])

    def test_trains_like_the_plain_module_with_fewer_gathers(self):
        config = str(SAMPLE / "train.toml")
        plain, _ = self.train("--unsharded", "--nproc", "2", config=config, sets=self.sets())
        gathered = {}
        for name, more in (("full_shard", ["fsdp.strategy=full_shard"]),
                           ("sample.keep_within", ["fsdp.strategy_options.keep_mib=0.07"])):
            steps, _ = self.train("--nproc", "2", config=config, sets=self.sets(*more))
            for a, b in zip(plain, steps, strict=True):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-5)
            gathered[name] = steps[-1]["all_gather_bytes"]
        # Two of three blocks are gathered once a step instead of twice. Both ranks' halves are even: no padding.
        self.assertEqual(gathered["full_shard"] - gathered["sample.keep_within"], 2 * BLOCK_BYTES)

    def test_faults_name_file_key_and_library(self):
        config = str(SAMPLE / "train.toml")
        done = self.run_host("--nproc", "2", config=config, sets=self.sets("fsdp.strategy_options.keep_mib=-1"))
        self.assert_fails(done, "strategy_options.keep_mib=-1", str(self.library), "keep_mib must be a number above 0",
                          "all 2 ranks say the same")
        for wrong in ("nan", "many"):
            done = self.run_host("--plan", config=config, sets=self.sets(f"fsdp.strategy_options.keep_mib={wrong}"))
            self.assert_fails(done, "keep_mib must be a number above 0")
        done = self.run_host("--nproc", "2", config=config, sets=self.sets("fsdp.strategy_options.keep_mb=1"))
        self.assert_fails(done, 'has no option `keep_mb`; it has "keep_mib"; did you mean `keep_mib`?')
        done = self.run_host("--nproc", "2", config=config, sets=self.sets("fsdp.plugins=[\"nothing.so\"]"))
        self.assert_fails(done, "nothing.so: cannot be loaded")

    def test_a_budget_for_all(self):
        done = self.run_host("--plan", config=str(SAMPLE / "train.toml"),
                             sets=self.sets("fsdp.strategy_options.keep_mib=1e300"))
        self.assertIn("note: 3 of 3 units stay whole", done.stdout, done.stderr)

    def test_environment_names_libraries_too(self):
        done = self.run_host("--plan", environment={"FSDP2_PLUGINS": str(self.library)},
                             sets=["fsdp.strategy=sample.keep_within"])
        self.assertIn("note: 3 of 3 units stay whole", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
