"""Adapters against what the hosts' own classes make of the same settings: accelerate's plugin by keywords, by variables
and by the launch file, and transformers' TrainingArguments. Where an adapter is meant to be otherwise, it says why."""
import contextlib
import io
import itertools
import json
import logging
import os
import random
import subprocess
import tempfile
import types
import unittest
import unittest.mock
import warnings

import torch
import yaml
from accelerate.commands import launch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from transformers.training_args import TrainingArguments
for host in ("accelerate", "transformers"):
    logging.getLogger(host).setLevel(logging.CRITICAL)


def grid(space, count, seed, base=({},)):
    """Each value alone beside each base, pairs of them beside the first base, and random ones."""
    for start in base:
        yield dict(start)
        for key, values in space.items():
            for value in values:
                yield {**start, key: value}
    for one, other in itertools.combinations(space, 2):
        for value, second in itertools.product(space[one][:2], space[other][:2]):
            yield {**base[0], one: value, other: second}
    generator = random.Random(seed)
    for _ in range(count):
        some = {key: generator.choice(values) for key, values in space.items() if generator.random() < 0.35}
        yield {**generator.choice(base), **some}


def translate(requests):
    text = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run([os.environ["FSDP2_TRANSLATE"]], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


@contextlib.contextmanager
def environment(variables):
    """The variables alone, of those that accelerate reads. It believes that there is a GPU, to which it would copy."""
    own = ("FSDP_", "ACCELERATE_", "PARALLELISM_CONFIG_")
    rest = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    with unittest.mock.patch.dict(os.environ, {**rest, **variables}, clear=True), \
            unittest.mock.patch("accelerate.utils.dataclasses.is_cuda_available", lambda: True), \
            unittest.mock.patch("torch.cuda.current_device", lambda: 0), \
            warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def dtype(value):
    return None if value is None else str(value).removeprefix("torch.")


def meaning(plugin):
    """What a plugin would do, in canonical keys."""
    first = plugin.fsdp_version == 1
    keys = {"version": plugin.fsdp_version}
    if first:
        strategy = plugin.sharding_strategy
        keys["strategy"] = strategy.name.lower().removeprefix("_")
        keys["reshard_after_forward"] = strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
        offload = plugin.cpu_offload == CPUOffload(offload_params=True)
        keys["prefetch.backward"] = 0 if plugin.backward_prefetch is None else 1
        keys["prefetch.forward"] = 1 if plugin.forward_prefetch else 0
        broadcast = plugin.sync_module_states
    else:
        keys["strategy"] = "full_shard" if plugin.reshard_after_forward else "shard_grad_op"
        keys["reshard_after_forward"] = plugin.reshard_after_forward
        offload = isinstance(plugin.cpu_offload, CPUOffloadPolicy)
        if offload:
            keys["offload.pin_memory"] = plugin.cpu_offload.pin_memory
        broadcast = plugin.cpu_ram_efficient_loading
    if offload:
        keys["offload.params"] = True
    keys["load.mode"] = "broadcast" if broadcast else "full"
    keys["checkpoint.kind"] = "full" if plugin.state_dict_type.name == "FULL_STATE_DICT" else "sharded"
    if plugin.auto_wrap_policy is transformer_auto_wrap_policy:
        keys["wrap.policy"] = "transformer"
        if plugin.transformer_cls_names_to_wrap:
            names = [name.strip() for name in plugin.transformer_cls_names_to_wrap]  # as the adapter does, with a note
            keys["wrap.layer_classes"] = [name for name in names if name]
    elif plugin.auto_wrap_policy is size_based_auto_wrap_policy:
        keys["wrap.policy"] = "size"
        keys["wrap.min_num_params"] = plugin.min_num_params
    else:
        keys["wrap.policy"] = "none"
    keys["activation_checkpointing"] = bool(plugin.activation_checkpointing)
    if plugin.ignored_modules is not None:
        keys["ignored_modules"] = [plugin.ignored_modules]
    policy = plugin.mixed_precision_policy
    if policy is not None:
        keys["mixed_precision.param"] = dtype(policy.param_dtype)
        keys["mixed_precision.reduce"] = dtype(policy.reduce_dtype)
        if not first:
            keys["mixed_precision.output"] = dtype(policy.output_dtype)
        keys["mixed_precision.cast_forward_inputs"] = (policy.cast_forward_inputs if not first else
                                                       policy.cast_forward_inputs or policy.cast_root_forward_inputs)
    return keys


def fails_later(plugin):
    """Why preparing a model fails with a plugin that was made without complaint, or None."""
    first = plugin.fsdp_version == 1
    if first and not isinstance(plugin.sharding_strategy, ShardingStrategy):
        return "FullyShardedDataParallel knows no such strategy"
    empty = plugin.auto_wrap_policy is None or (plugin.auto_wrap_policy is size_based_auto_wrap_policy and
                                                plugin.min_num_params == 0)
    needs_units = "HYBRID" in plugin.sharding_strategy.name if first else plugin.activation_checkpointing
    return "it needs units, and there are none" if empty and needs_units else None


class Hosts(unittest.TestCase):
    maxDiff = None

    def compare(self, cases, host, request, stricter=lambda case: False, documented=lambda case: None):
        """`stricter`: what the adapter refuses on purpose; `documented`: a strategy that wins over the host's defect."""
        cases = list(cases)
        answers = translate([request(case) for case in cases])
        self.assertEqual(len(answers), len(cases))
        counts = {"ok": 0, "refused": 0}
        for case, answer in zip(cases, answers):
            with self.subTest(case=case):
                try:
                    plugin = host(case)
                    refused = fails_later(plugin)
                except (ValueError, KeyError, TypeError, AttributeError, SystemExit) as error:
                    refused = repr(error)
                if stricter(case):
                    self.assertIn("error", answer)
                    continue
                if refused:
                    self.assertIn("error", answer, refused)
                    counts["refused"] += 1
                    continue
                self.assertNotIn("error", answer)
                wanted = meaning(plugin)
                wanted.update(documented(case) or {})
                given = dict(answer["given"])
                given.setdefault("activation_checkpointing", False)
                if given["strategy"].startswith("hybrid"):
                    given.pop("mesh.replicate", None), given.pop("mesh.shard", None)
                self.assertEqual(given, wanted)
                counts["ok"] += 1
        self.assertGreater(counts["ok"], 500)
        self.assertGreater(counts["refused"], 50)


STRATEGIES = ["SHARD_GRAD_OP", "full_shard", "NO_SHARD", "HYBRID_SHARD", "hybrid_shard_zero2"]
POLICIES = ["TRANSFORMER_BASED_WRAP", "size_based_wrap", "NO_WRAP", "SIZE_WRAP"]
STATE_DICTS = ["FULL_STATE_DICT", "sharded_state_dict", "LOCAL_STATE_DICT", "1", "3", "2", "4", "SHARDED"]
PREFETCHES = ["BACKWARD_PRE", "backward_post", "NO_PREFETCH", "BACKWARD"]


def strategy_named(name):
    """A version 1 strategy that is written where the host documents it, but does not read it."""
    name = name.lower()
    return {"strategy": name, "reshard_after_forward": name in ("full_shard", "hybrid_shard")}


class AccelerateKeywords(Hosts):
    SPACE = {
        "sharding_strategy": STRATEGIES + ["1", "5", "6", "NO_RESHARD", 2],
        "reshard_after_forward": [True, False, "true", "off", "1", 1, 0, 8],
        "auto_wrap_policy": POLICIES,
        "transformer_cls_names_to_wrap": [["A", "B"], "A,B", "A, B"],
        "min_num_params": [1000, 0, 1.5, "100"],
        "cpu_offload": [True, False, "true", 1],
        "state_dict_type": STATE_DICTS,
        "cpu_ram_efficient_loading": [True, False],
        "sync_module_states": [True, False],
        "backward_prefetch": PREFETCHES + [1, 2, 3],
        "forward_prefetch": [True, False],
        "use_orig_params": [True, False],
        "activation_checkpointing": [True, False],
        "activation_checkpointing_offload": [True, False],
        "limit_all_gathers": [True, False],
        "ignored_modules": ["head.*"],
        "mixed_precision_policy": ["bf16", "fp16", "fp32", "fp8", "bfloat16", "no"],
        "unknown": [1],
    }

    @staticmethod
    def host(case):
        with environment({}):
            return FullyShardedDataParallelPlugin(**case)

    @staticmethod
    def request(case):
        def written(value):
            return json.dumps(value) if isinstance(value, (str, list)) else str(value)
        return {"dialect": "accelerate", "keys": [[key, written(value)] for key, value in case.items()]}

    @staticmethod
    def named(case):
        """Version 1's `reshard_after_forward`, whose name counts."""
        reshard = case.get("reshard_after_forward")
        if case["fsdp_version"] == 2 or case.get("sharding_strategy") is not None or not isinstance(reshard, str):
            return None
        return strategy_named(STRATEGY_NUMBERS.get(reshard, reshard))

    def stricter(self, case):
        strategy = (self.named(case) or {}).get("strategy", "")
        makes_units = case.get("auto_wrap_policy") == "TRANSFORMER_BASED_WRAP" or (
            case.get("auto_wrap_policy") == "size_based_wrap" and case.get("min_num_params", 0) not in (0, "100", 1.5))
        return "hybrid" in strategy and not makes_units

    def test_version_1(self):
        space = {**self.SPACE, "reshard_after_forward": STRATEGIES + ["1", "NO_RESHARD", True, False]}
        self.compare(grid(space, 2000, 1, [{"fsdp_version": 1}]), self.host, self.request, self.stricter, self.named)

    def test_version_2(self):
        base = [{"fsdp_version": 2}, {"fsdp_version": 2, "reshard_after_forward": False}]
        self.compare(grid(self.SPACE, 2000, 2, base), self.host, self.request)

    def test_tables_of_dtypes(self):
        names = {"bf16": torch.bfloat16, "fp32": torch.float32}
        cases = []
        for version, keys in itertools.product((1, 2), itertools.product(("bf16", "fp32", None), repeat=4)):
            table = dict(zip(("param_dtype", "reduce_dtype", "output_dtype", "buffer_dtype"), keys))
            cases.append({"fsdp_version": version, **{key: value for key, value in table.items() if value}})
        cases = [case for case in cases if len(case) > 1]

        def keys_of(case):
            return [[key if key == "fsdp_version" else f"mixed_precision_policy.{key}", str(value)]
                    for key, value in case.items()]

        answers = translate([{"dialect": "accelerate", "keys": keys_of(case)} for case in cases])
        for case, answer in zip(cases, answers):
            policy = {key: names[value] for key, value in case.items() if key != "fsdp_version"}
            with self.subTest(case=case), environment({}):
                try:
                    plugin = FullyShardedDataParallelPlugin(fsdp_version=case["fsdp_version"],
                                                            mixed_precision_policy=policy)
                except (ValueError, TypeError) as error:
                    self.assertIn("error", answer, error)
                    continue
                wanted = {key: value for key, value in meaning(plugin).items() if key.startswith("mixed")}
                given = {key: value for key, value in answer["given"].items() if key.startswith("mixed")}
                self.assertEqual(given, wanted)


STRATEGY_NUMBERS = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard",
                    "5": "hybrid_shard_zero2"}
TRUTHS = ["true", "false", "ON", "0", "maybe"]


class AccelerateVariables(Hosts):
    SPACE = {
        "FSDP_SHARDING_STRATEGY": STRATEGIES + ["1", "5", "6", "NO_RESHARD"],
        "FSDP_RESHARD_AFTER_FORWARD": TRUTHS,
        "FSDP_AUTO_WRAP_POLICY": POLICIES,
        "FSDP_TRANSFORMER_CLS_TO_WRAP": ["A,B", "A, B", "A"],
        "FSDP_MIN_NUM_PARAMS": ["1000", "1_000", "1e8", "0"],
        "FSDP_OFFLOAD_PARAMS": TRUTHS,
        "FSDP_STATE_DICT_TYPE": STATE_DICTS,
        "FSDP_CPU_RAM_EFFICIENT_LOADING": TRUTHS,
        "FSDP_SYNC_MODULE_STATES": TRUTHS,
        "FSDP_BACKWARD_PREFETCH": PREFETCHES + ["1", "2", "3"],
        "FSDP_FORWARD_PREFETCH": TRUTHS,
        "FSDP_USE_ORIG_PARAMS": TRUTHS,
        "FSDP_ACTIVATION_CHECKPOINTING": TRUTHS,
        "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": TRUTHS,
        "FSDP_IGNORED_MODULES": ["head.*"],
        "FSDP_UNKNOWN": ["1"],
        "ACCELERATE_MIXED_PRECISION": ["no", "bf16", "fp16", "fp8", "bfloat16"],
    }

    @staticmethod
    def host(case):
        with environment(case):
            plugin = FullyShardedDataParallelPlugin()
            precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
            if precision != "no":  # as AcceleratorState does it
                plugin.set_mixed_precision(precision)
            return plugin

    @staticmethod
    def request(case):
        return {"dialect": "accelerate", "keys": [["ACCELERATE_USE_FSDP", "true"], *map(list, case.items())]}

    def compare_version(self, version, seed, **options):
        self.compare(grid(self.SPACE, 2500, seed, [{"FSDP_VERSION": version}]), self.host, self.request, **options)

    def test_version_1(self):
        # Never read by the host; by what it documents it is a strategy, so it must be one.
        self.compare_version("1", 3, stricter=lambda case: (
            case.get("FSDP_RESHARD_AFTER_FORWARD") in ("0", "maybe") and "FSDP_SHARDING_STRATEGY" not in case))

    def test_version_2(self):
        self.compare_version("2", 4)


class AccelerateLaunchFile(Hosts):
    SPACE = {
        "fsdp_sharding_strategy": STRATEGIES + [1, "5", 6, "NO_RESHARD"],
        "fsdp_reshard_after_forward": [True, False, "ON", 1, 0],
        "fsdp_auto_wrap_policy": POLICIES,
        "fsdp_transformer_layer_cls_to_wrap": ["A,B", "A, B", "A"],
        "fsdp_min_num_params": [1000, "1_000", "1e8", 0],
        "fsdp_offload_params": [True, False, "on", "maybe"],
        "fsdp_state_dict_type": [*STATE_DICTS, 1, 3],
        "fsdp_cpu_ram_efficient_loading": [True, False, "no"],
        "fsdp_sync_module_states": [True, False, "false"],
        "fsdp_backward_prefetch": PREFETCHES + [1, 2, 3],
        "fsdp_forward_prefetch": [True, False, "f"],
        "fsdp_use_orig_params": [True, False],
        "fsdp_activation_checkpointing": [True, False],
        "fsdp_activation_checkpointing_offload": [True, False],
        "fsdp_ignored_modules": ["head.*"],
        "fsdp_backward_prefetch_policy": ["BACKWARD_PRE"],
    }
    TOP = {"mixed_precision": ["no", "bf16", "FP16", "fp8", "fp12"]}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "launch.yaml")
        self.parser = launch.launch_command_parser()

    @staticmethod
    def file(case):
        top = {key: value for key, value in case.items() if not key.startswith("fsdp")}
        fsdp = {key: value for key, value in case.items() if key.startswith("fsdp")}
        return {"distributed_type": "FSDP", "num_processes": 2, "num_machines": 1, **top, "fsdp_config": fsdp}

    def host(self, case):
        with open(self.path, "w") as stream:
            yaml.safe_dump(self.file(case), stream)
        arguments = self.parser.parse_args(["--config_file", self.path, "train.py"])
        with environment({}), unittest.mock.patch("accelerate.utils.launch.is_fp8_available", lambda: True), \
                contextlib.redirect_stdout(io.StringIO()):
            arguments, _, _ = launch._validate_launch_command(arguments)
            variables = prepare_multi_gpu_env(arguments)
        wanted = ("FSDP_", "ACCELERATE_MIXED")
        return AccelerateVariables.host({key: value for key, value in variables.items() if key.startswith(wanted)})

    def request(self, case):
        return {"dialect": "accelerate", "text": yaml.safe_dump(self.file(case))}

    def compare_version(self, version, seed, **options):
        self.compare(grid({**self.SPACE, **self.TOP}, 1200, seed, [{"fsdp_version": version}]), self.host, self.request,
                     **options)

    def test_version_1(self):
        self.compare_version(1, 5, stricter=lambda case: (
            isinstance(case.get("fsdp_reshard_after_forward"), int) and
            not isinstance(case["fsdp_reshard_after_forward"], bool) and "fsdp_sharding_strategy" not in case and
            case["fsdp_reshard_after_forward"] == 0))

    def test_version_2(self):
        self.compare_version(2, 6)


class Transformers(Hosts):
    SPACE = {
        "reshard_after_forward": [True, False, "OFF", 1, "FULL_SHARD", 8, None],
        "cpu_offload": [True, False, 0, None],
        "auto_wrap_policy": ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP", "size_based_wrap", None],
        "transformer_layer_cls_to_wrap": [["A", "B"], "A,B", None],
        "min_num_params": [1000, 0, "100", 1.5, None],
        "cpu_ram_efficient_loading": [True, False, "True", "maybe", None],
        "state_dict_type": [*STATE_DICTS, None],
        "activation_checkpointing": [True, False, "yes", "maybe", None],
        "forward_prefetch": [True, False, "on"],
        "backward_prefetch": PREFETCHES,
        "sync_module_states": [True, False, "off"],
        "use_orig_params": [True, False],
        "limit_all_gathers": [True, False],
        "sharding_strategy": ["NO_SHARD"],
        "offload_params": [True],
        "ignored_modules": ["head"],
        "xla_fsdp_grad_ckpt": [True, False],
        "unknown": [1],
        "fsdp_version": [1, 2, "2"],
        "fsdp_min_num_params": [500],
    }
    FSDP = [True, "full_shard", "shard_grad_op offload", ["offload", "auto_wrap"], "no_shard", "hybrid_shard auto_wrap",
            "SHARD_GRAD_OP", "true", "full_shard shard_grad_op", ["hybrid_shard_zero2"]]

    @staticmethod
    def host(case):
        case = json.loads(json.dumps(case))
        arguments = types.SimpleNamespace(
            fsdp=case.pop("fsdp"), fsdp_config=case, activation_checkpointing=False,
            _apply_legacy_fsdp_to_config=TrainingArguments._apply_legacy_fsdp_to_config)
        with environment({}):
            return FullyShardedDataParallelPlugin(**TrainingArguments._process_fsdp_args(arguments))

    @staticmethod
    def request(case):
        config = {key: value for key, value in case.items() if key != "fsdp"}
        return {"dialect": "transformers", "text": json.dumps({"fsdp": case["fsdp"], "fsdp_config": config})}

    @staticmethod
    def documented(case):
        """The host runs every strategy of version 1 as FULL_SHARD, against what it documents."""
        if int(case.get("fsdp_version", case["version"])) == 2:
            return None
        words = case["fsdp"].split() if isinstance(case["fsdp"], str) else case["fsdp"]
        named = [word for word in words if word.upper() in map(str.upper, STRATEGIES)] if words is not True else []
        written = case.get("reshard_after_forward", named[0] if named else "full_shard")
        return strategy_named(STRATEGY_NUMBERS.get(str(written), str(written)))

    def stricter(self, case):
        named = self.documented(case)
        policy = case.get("auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
        least = case.get("fsdp_min_num_params", case.get("min_num_params", 0))
        empty = policy == "NO_WRAP" or (policy == "SIZE_BASED_WRAP" and least == 0)
        return named is not None and "hybrid" in named["strategy"] and empty

    def cases(self, version, seed):
        base = [{"version": version, "fsdp": fsdp} for fsdp in self.FSDP]
        space = dict(self.SPACE)
        if version == 1:
            space["reshard_after_forward"] = [*STRATEGIES, True, "NO_RESHARD"]
        return grid(space, 1500, seed, base)

    def test_version_1(self):
        self.compare(self.cases(1, 7), self.host, self.request, self.stricter, self.documented)

    def test_version_2(self):
        self.compare(self.cases(2, 8), self.host, self.request, self.stricter, self.documented)

    def test_defaults(self):
        answer, = translate([{"dialect": "transformers", "text": "{}"}])
        self.assertEqual({**answer["given"], "activation_checkpointing": False}, meaning(self.host({"fsdp": True})))


if __name__ == "__main__":
    unittest.main()
