"""`fsdp2 translate`: files of all dialects through the program; what they must come to is in tests/cases/dialects."""

import json
import pathlib
import subprocess
import tomllib
import unittest

from cli import FSDP2, ROOT, CliTest

CASES = ROOT / "tests" / "cases" / "dialects"
ACCELERATE = CASES / "accelerate" / "v2_mesh_leftovers.yaml"
ENVIRONMENT = """# of a launch
export ACCELERATE_USE_FSDP="true"
FSDP_VERSION=2            # the new one
FSDP_TRANSFORMER_CLS_TO_WRAP='Block'
FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP
FSDP_OFFLOAD_PARAMS=true
FSDP_USE_ORIG_PARAMS=false
"""
COMPOSER = "max_duration: 1ba\nfsdp_config:\n  activation_checkpointing: false\n"
TITAN = "[parallelism]\ndata_parallel_shard_degree = 4\n"


def leaves(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def cases():
    for expected in sorted(CASES.glob("*/*.expected.toml")):
        stem = expected.name.removesuffix(".expected.toml")
        (source,) = [path for path in expected.parent.glob(stem + ".*") if path != expected]
        yield source, tomllib.loads(expected.read_text())


class Translate(CliTest):
    def translate(self, text, *arguments, name="host.yaml", **options):
        return self.run_fsdp2("translate", self.write(name, text), *arguments, **options)

    def test_every_dialect_has_a_case(self):
        dialects = {entry["name"] for entry in self.json_of("dialects")["dialects"]}
        self.assertEqual({source.parent.name for source, _ in cases()}, dialects)

    def test_cases(self):
        for source, expected in cases():
            arguments = ["translate", source, "--dialect", source.parent.name]
            for name, value in expected.get("context", {}).items():
                arguments += ["--to-version", value] if name == "version" else ["--context", f"{name}={value}"]
            expect = expected["expect"]
            with self.subTest(source=source.name):
                if expect["outcome"] == "error":
                    done = self.run_fsdp2(*arguments, status=1)
                    self.assertRegex(done.stderr, rf"^fsdp2: {source}:\d+:\d+: ")
                    self.assertTrue(any(key in done.stderr for key in expect["error_keys"]), done.stderr)
                    error = self.json_of(*arguments, status=1)["error"]
                    self.assertTrue(error["line"] and error["column"] and error["key"])
                    continue
                result = self.json_of(*arguments)
                keys = {row["key"]: row for row in result["keys"]}
                for key, value in leaves(expected["fsdp"]):
                    self.assertEqual(keys[key]["value"], value, key)
                for key in expect["absent"]:
                    self.assertNotIn(key, keys)
                self.assertEqual(result["obsolete"], expect["obsolete"])
                self.assertEqual(bool(result["warning"]), bool(expect["obsolete"]))
                for key in expect["obsolete"]:
                    self.assertIn(f"`{key}`", result["warning"])
                for key in expect["notes"]:
                    self.assertIn(key, " ".join(result["notes"]))
                self.check_places(source, keys)
                self.check_text(arguments, result)

    def check_places(self, source, keys):
        lines = source.read_text().splitlines()
        for row in keys.values():
            if isinstance(row["from"], dict) and "line" in row["from"]:
                place = row["from"]
                self.assertEqual(place["file"], str(source))
                self.assertEqual(place["text"], lines[place["line"] - 1].strip())
                self.assertIn(place["key"].rsplit(".", 1)[-1].removeprefix("fsdp_"), place["text"] + place["key"])

    def check_text(self, arguments, result):
        """The same without --json, and the printed TOML read again."""
        done = self.run_fsdp2(*arguments)
        self.assertEqual(done.stdout, result["toml"])
        self.assertEqual(tomllib.loads(done.stdout), {"fsdp": result["options"]})
        for note in result["notes"] + result["remarks"]:
            self.assertIn(f"note: {note}\n", done.stderr)
        if result["warning"]:
            self.assertIn(f"warning: {result['warning']}\n", done.stderr)
        printed = self.write("printed.toml", done.stdout)
        self.assertEqual(self.run_fsdp2("translate", printed).stdout, done.stdout)

    def test_pipes(self):
        """Files and standard input alike; what the file must come to is in test_cases."""
        first = self.run_fsdp2("translate", ACCELERATE).stdout
        for text in (first, ACCELERATE.read_text()):
            done = subprocess.run([FSDP2, "translate", "-"], input=text, capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, first)
        wrong = subprocess.run(
            [FSDP2, "translate", "-"], input="[fsdp]\nmesh.shrd = 1\n", capture_output=True, text=True, check=False
        )
        self.assertEqual(wrong.returncode, 1)
        self.assertEqual(wrong.stderr, "fsdp2: <stdin>:2:6: [fsdp] has no key `mesh.shrd`; did you mean `mesh.shard`?\n")

    def test_whose_file_it_is_is_said(self):
        done = self.run_fsdp2("translate", ACCELERATE)
        self.assertIn(f"note: {ACCELERATE}: taken as the dialect accelerate (the key `distributed_type`", done.stderr)
        self.assertNotIn("taken as", self.run_fsdp2("translate", ACCELERATE, "--dialect", "accelerate").stderr)
        unclear = self.translate("distributed_type: FSDP\nzero_optimization: {stage: 1}\n", status=1)
        for part in ("accelerate (the key", "deepspeed (the key", "--dialect"):
            self.assertIn(part, unclear.stderr)

    def test_difference(self):
        done = self.run_fsdp2("translate", ACCELERATE, "--diff")
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^key +value +from +default here$")
        self.assertTrue(any(line.startswith("load.mode ") and line.endswith('"sharded"') for line in lines))
        self.assertRegex(done.stdout, rf"mesh.shard +4 +{ACCELERATE}:17 parallelism_config_dp_shard_size: 4 +none\n")
        self.assertRegex(done.stdout, r'checkpoint.kind +"sharded" +default of accelerate\n')
        self.assertIn("loses its meaning: fsdp_use_orig_params\n", done.stdout)
        self.assertRegex(done.stdout, r"note: .*:12:39: `fsdp_transformer_layer_cls_to_wrap: ")
        self.assertNotIn("[fsdp]", done.stdout)

    def test_to_version(self):
        text = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_backward_prefetch: BACKWARD_PRE\n"
        first = self.translate(text)
        self.assertIn("version = 1\n", first.stdout)
        self.assertIn("--to-version 2 converts it", first.stderr)
        second = self.translate(text, "--to-version", 2)
        self.assertIn("version = 2\n", second.stdout)
        self.assertEqual(second.stderr.count("warning: "), 1)
        self.assertIn("`fsdp_backward_prefetch` (line 4)", second.stderr)
        back = self.translate(text.replace("version: 1", "version: 2"), "--to-version", 1, status=1)
        self.assertRegex(back.stderr, r":3:17: `fsdp_version: 2` cannot be converted to version 1")
        self.translate(text, "--to-version", 3, status=2)

    def test_lists_of_variables_and_keywords(self):
        done = self.translate(ENVIRONMENT, name="launch.env")
        options = tomllib.loads(done.stdout)["fsdp"]
        self.assertEqual(options["wrap"], {"policy": "transformer", "layer_classes": ["Block"]})
        self.assertEqual(options["offload"], {"params": True})
        self.assertIn("`FSDP_USE_ORIG_PARAMS` (line 7)", done.stderr)
        wrong = self.translate(ENVIRONMENT + "FSDP_STATE_DICT_TYPE=FULL_STATE_DIKT\n", name="launch.env", status=1)
        self.assertRegex(wrong.stderr, r"launch.env:8:1: `FSDP_STATE_DICT_TYPE=.*did you mean `FULL_STATE_DICT`\?")
        keywords = "fsdp_version=2\ntransformer_cls_names_to_wrap=[\"A\", \"B\"]\nauto_wrap_policy=transformer_based_wrap\n"
        done = self.translate(keywords, "--dialect", "accelerate", name="keywords.txt")
        self.assertEqual(tomllib.loads(done.stdout)["fsdp"]["wrap"]["layer_classes"], ["A", "B"])

    def test_the_environment_counts_only_where_asked(self):
        variable = {"FSDP_VERSION": "2"}
        own = self.write("own.toml", '[fsdp]\nconfig = "host.yaml"\n')
        for arguments, version in (((), 1), (("--use-env",), 2), (("--env", "FSDP_VERSION=2"), 2)):
            environment = {} if "--env" in arguments else variable
            done = self.translate(COMPOSER, *arguments, environment=environment)
            self.assertIn(f"version = {version}\n", done.stdout)
            done = self.run_fsdp2("translate", own, *arguments, environment=environment)
            self.assertIn(f"version = {version}\n", done.stdout)
        launched = {"ACCELERATE_USE_FSDP": "true", "FSDP_OFFLOAD_PARAMS": "true"}
        bare = "ACCELERATE_USE_FSDP=true\n"
        self.assertNotIn("offload", self.translate(bare, environment=launched).stdout)
        self.assertIn("offload.params", self.translate(bare, "--use-env", environment=launched).stdout)
        unread = self.translate(TITAN, "--env", "FSDP_VERSION=2", name="t.toml")
        self.assertIn("note: `--env FSDP_VERSION=2` has no effect", unread.stderr)
        for text, name, dialect, variable in ((ENVIRONMENT, "launch.env", "accelerate", "FSPD_VERSION=2"),
                                              ("zero_optimization.stage=3\n", "ds.txt", "deepspeed", "FSDP_VERSION=2"),
                                              (COMPOSER, "host.yaml", "composer", "FSDP_VERSIONS=2")):
            unread = self.translate(text, "--dialect", dialect, "--env", variable, name=name)
            self.assertIn(f"note: `--env {variable}` has no effect", unread.stderr, dialect)

    def test_context(self):
        done = self.translate(TITAN, "--context", "num_processes=6", name="t.toml", status=1)
        self.assertRegex(done.stderr, r"t.toml:2:30: `parallelism.data_parallel_shard_degree = 4` does not fit 6 ranks")
        mesh = self.write("own.toml", "[fsdp]\nmesh.shard = 4\n")
        self.run_fsdp2("translate", mesh, "--context", "num_nodes=2", "--context", "processes_per_node=4")
        done = self.run_fsdp2("translate", mesh, "--context", "num_processes=6", status=1)
        self.assertIn("own.toml:2:14: `mesh.shard = 4` does not divide the 6 ranks there are", done.stderr)

    def test_flags_of_the_other_host(self):
        flags = ("--", "--parallelism.data_parallel_shard_degree", "8", "--training.enable-cpu-offload")
        done = self.translate(TITAN, "--dialect", "torchtitan", *flags, name="t.toml")
        self.assertIn("mesh.shard = 8\n", done.stdout)
        self.assertIn("offload.params = true\n", done.stdout)
        wrong = self.translate(TITAN, *flags[:2], "none", name="t.toml", status=1)
        self.assertIn("`--parallelism.data_parallel_shard_degree none` must be a number of ranks", wrong.stderr)
        refused = self.translate(COMPOSER, *flags, status=1)
        self.assertIn("dialect `composer` takes no flags of its host's command line", refused.stderr)
        self.translate(COMPOSER, "--dialect", "composer", *flags, status=2)

    def test_classes_that_are_left_to_the_model(self):
        done = self.translate('{"fsdp": true, "per_device_train_batch_size": 1}', name="t.json")
        self.assertIn('wrap.policy = "transformer"\n', done.stdout)
        self.assertIn("needs `wrap.layer_classes` beside it: it must be added", done.stderr)

    def test_input_at_fault(self):
        large = "a: 1\n" * 300_000
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
        )
        for text, name, reason in (
            (large, "a.yaml", "larger than 1 MiB"),
            (bomb, "a.yaml", "it is not clear whose file this is"),
            ("distributed_type: FSDP\n" + bomb, "a.yaml", "there are more than 10000 keys and list elements"),
            ("{" * 5000, "a.json", "it is not clear whose file this is"),
            ("", "a.yaml", "as TOML, YAML or JSON it has no keys at all"),
            ("[fsdp]\nversion = = 1\n", "a.toml", "a.toml:2:11: this is not TOML"),
            ("FSDP_VERSION=${V}\n", "a.env", "a.env:1:1: `FSDP_VERSION` stands for another value"),
            ("distributed_type: FSPD\n", "a.yaml", "a.yaml:1:19: `distributed_type: FSPD`"),
            ("distributed_type: FSDP\nfsdp_confg: {}\n", "a.yaml", "did you mean `fsdp_config`?"),
        ):
            done = self.translate(text, name=name, status=1)
            self.assertIn(reason, done.stderr, name)
            self.assertEqual(done.stdout, "")
        (self.folder / "b.yaml").write_bytes(b"a: \xff\n")
        self.assertIn("b.yaml:1:4: this is not text in UTF-8", self.run_fsdp2("translate", self.folder / "b.yaml", status=1).stderr)
        self.assertIn("is a folder", self.run_fsdp2("translate", self.folder, status=1).stderr)
        self.assertIn("cannot read `none.yaml`", self.run_fsdp2("translate", "none.yaml", status=1).stderr)
        self.assertEqual(self.json_of("translate", "none.yaml", status=1)["error"]["code"], "not_found")

    def test_command_line_at_fault(self):
        for arguments, reason in (
            ((), "FILE"),
            ((ACCELERATE, "--dialect", "acelerate"), "did you mean `accelerate`?"),
            ((ACCELERATE, "--context", "num_proceses=8"), "did you mean `num_processes`?"),
            ((ACCELERATE, "--context", "num_processes"), "must be num_processes=N"),
            ((ACCELERATE, "--context", "num_processes=8", "--context", "num_nodes=3"), "does not divide among num_nodes=3"),
            ((ACCELERATE, "--env", "FSDP_VERSION"), "is not NAME=VALUE"),
            ((ACCELERATE, "--env", "fsdp_version=2"), "keywords belong into FILE"),
            ((ACCELERATE, "--to-version", "two"), "--to-version"),
            ((ACCELERATE, ACCELERATE), "there can be one"),
            ((ACCELERATE, "--dialct", "accelerate"), "Did you mean --dialect?"),
        ):
            done = self.run_fsdp2("translate", *arguments, status=2)
            self.assertIn(reason, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_help_has_examples_that_work(self):
        text = self.run_fsdp2("translate", "--help").stdout
        self.assertIn("Examples:\n  fsdp2 translate accelerate.yaml > fsdp.toml\n", text)
        files = {
            "accelerate.yaml": ACCELERATE.read_text(),
            "ds_config.json": (CASES / "deepspeed" / "hpz_bf16.json").read_text(),
            "llm_foundry.yaml": COMPOSER,
            "train.toml": TITAN,
        }
        for name, content in files.items():
            self.write(name, content)
        examples = [line.strip() for line in text.splitlines() if line.startswith("  fsdp2 translate ")]
        self.assertEqual(len(examples), 5)
        for line in examples:
            command = line.replace("fsdp2", str(pathlib.Path(FSDP2).resolve()), 1)
            subprocess.run(command, shell=True, check=True, cwd=self.folder, capture_output=True)
        self.assertIn("[fsdp]", (self.folder / "fsdp.toml").read_text())

    def test_json_of_an_error_is_json(self):
        error = self.json_of("translate", CASES / "lightning" / "norm_clip.yaml", status=1)["error"]
        self.assertEqual((error["line"], error["column"], error["key"]), (4, 22, "gradient_clip_val"))
        self.assertIsInstance(json.dumps(error), str)


if __name__ == "__main__":
    unittest.main()
