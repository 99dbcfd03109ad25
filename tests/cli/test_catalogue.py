"""`fsdp2 strategies`, `fsdp2 dialects`, and what the command line says of mistakes."""

import unittest

from cli import BUILD, CliTest

KEEP_WITHIN = BUILD / "lib" / "libkeep_within.so"
OTHER_MAJOR = BUILD / "lib" / "libcli_other_major.so"
OUR_DIALECT = BUILD / "lib" / "libcli_our_dialect.so"
BUILT_IN = ["accelerate", "transformers", "torchtitan", "deepspeed", "lightning", "torch_fsdp1", "composer", "torchfort"]


class CommandLine(CliTest):
    def test_a_wrong_command_names_the_nearest_one(self):
        done = self.run_fsdp2("dialetcs", status=2)
        self.assertIn("Did you mean dialects?", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_wrong_option_names_the_nearest_one(self):
        self.assertIn("Did you mean --json?", self.run_fsdp2("strategies", "--jsno", status=2).stderr)

    def test_help_shows_examples(self):
        for command in ("strategies", "dialects", "plan", "translate", "inspect"):
            self.assertIn(f"Examples:\n  fsdp2 {command}", self.run_fsdp2(command, "--help").stdout)


class Catalogue(CliTest):
    def test_what_is_built_in(self):
        strategies = self.json_of("strategies")["strategies"]
        self.assertEqual([entry["name"] for entry in strategies][:2], ["fsdp2.full_shard", "fsdp2.shard_grad_op"])
        self.assertEqual([entry["name"] for entry in self.json_of("dialects")["dialects"]], BUILT_IN)
        for entry in strategies + self.json_of("dialects")["dialects"]:
            self.assertIsNone(entry["library"])
            self.assertTrue(entry["help"])
        table = self.run_fsdp2("dialects").stdout.splitlines()
        self.assertRegex(table[0], r"^dialect +from +what it reads$")
        self.assertRegex(table[4], r"^deepspeed +built in +DeepSpeed: ")
        self.assertEqual(len(table), 1 + len(BUILT_IN))

    def check_sample(self, *arguments, environment=None):
        last = self.json_of("strategies", *arguments, environment=environment)["strategies"][-1]
        self.assertEqual(last["name"], "sample.keep_within")
        self.assertEqual(last["library"], str(KEEP_WITHIN))
        self.assertEqual(last["options"], ["keep_mib"])
        self.assertIn("stay whole within a budget", last["help"])

    def test_libraries_of_the_command_line_the_environment_and_a_file(self):
        config = self.write("train.toml", f'[fsdp]\nplugins = ["{KEEP_WITHIN}"]\n')
        self.check_sample("--plugins", KEEP_WITHIN)
        self.check_sample(environment={"FSDP2_PLUGINS": str(KEEP_WITHIN)})
        self.check_sample("--config", config)
        self.check_sample("--config", config, "--plugins", KEEP_WITHIN, environment={"FSDP2_PLUGINS": str(KEEP_WITHIN)})
        table = self.run_fsdp2("strategies", "--plugins", KEEP_WITHIN).stdout.splitlines()
        self.assertRegex(table[-1], rf"^sample.keep_within +{KEEP_WITHIN} .*strategy_options: keep_mib$")

    def test_libraries_that_do_not_fit(self):
        for library, reason in (
            (OTHER_MAJOR, "speaks ABI 7.0, this plugin 1."),
            (OUR_DIALECT, 'its dialect "accelerate" is one of this plugin; take another name'),
            (BUILD / "lib" / "libfsdp2_plugin.so", "is no extension: it does not export fsdp2_extension_get"),
            (self.write("text.so", "no library"), "cannot be loaded: "),
            ("/nowhere/lib.so", "cannot be loaded: "),
        ):
            for arguments, environment in (
                (("--plugins", library), {}),
                ((), {"FSDP2_PLUGINS": str(library)}),
                (("--config", self.write("train.toml", f'[fsdp]\nplugins = ["{library}"]\n')), {}),
            ):
                done = self.run_fsdp2("strategies", *arguments, status=1, environment=environment)
                self.assertIn(reason, done.stderr)
                self.assertIn(str(library), done.stderr)
                self.assertEqual(done.stdout, "")
        error = self.json_of("dialects", "--plugins", OTHER_MAJOR, status=1)["error"]
        self.assertEqual(error["code"], "version_mismatch")

    def test_a_file_that_does_not_fit(self):
        wrong = self.write("train.toml", "[fsdp]\nplugin = []\n")
        done = self.run_fsdp2("strategies", "--config", wrong, status=1)
        self.assertEqual(done.stderr, f"fsdp2: {wrong}:2:1: [fsdp] has no key `plugin`; did you mean `plugins`?\n")
        self.assertIn("cannot read", self.run_fsdp2("strategies", "--config", "nowhere.toml", status=1).stderr)


if __name__ == "__main__":
    unittest.main()
