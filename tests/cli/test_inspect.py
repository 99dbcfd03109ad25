"""`fsdp2 inspect`: what it says of models, against what Python says of the modules that they were exported from."""

import io
import os
import shutil
import subprocess
import tomllib
import unittest
import zipfile
import warnings
import zipfile
from typing import Dict, Tuple

import torch
from torch import nn

from cli import FSDP2, CliTest

warnings.filterwarnings("ignore")


class Layer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Stack(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 11, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class One(nn.Module):
    """A parameter of any kind beside a linear layer."""

    def __init__(self, parameter):
        super().__init__()
        self.odd = nn.Parameter(parameter, requires_grad=parameter.is_floating_point() and not parameter.is_quantized)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Forks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.jit.wait(torch.jit.fork(layer, x))
        return x


class ReturnsFuture(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.jit.Future[torch.Tensor]:
        return torch.jit.fork(torch.tanh, self.up(x))


class WaitsOutside(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([ReturnsFuture() for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.jit.wait(layer(x))
        return x


class InDict(nn.Module):
    named: Dict[str, torch.Tensor]

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.named = {"w": self.linear.weight}

    def forward(self, x):
        return self.linear(x) @ self.named["w"]


class SharedWithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("old", self.linear.weight.data)

    def forward(self, x):
        return self.linear(x) @ self.old


class Around(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Uncalled(Stack):
    def __init__(self):
        super().__init__()
        self.spare = Layer()


class Twice(nn.Module):
    """One object: of a plain module, scripting would make two."""

    def __init__(self):
        super().__init__()
        self.first = torch.jit.script(nn.Linear(4, 4))
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x))


class Beside(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, x):
        return self.second(self.first(x))


class TableAndHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, ids):
        return self.head(self.table(ids))


class Different(nn.Module):
    """Five parts of much the same size and of five classes."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 64)
        self.mix = nn.Conv1d(64, 64, 1)
        self.up = nn.Linear(64, 64)
        self.pair = nn.Bilinear(8, 8, 64)
        self.cell = nn.GRUCell(32, 32)

    def forward(self, ids):
        x = self.up(self.mix(self.embed(ids).unsqueeze(-1)).squeeze(-1))
        return self.cell(self.pair(x[:, :8], x[:, 8:16])[:, :32])


def shifts(self, inputs: Tuple[torch.Tensor]) -> Tuple[torch.Tensor]:
    return (inputs[0] + self.bias[0],)


def frozen(module):
    """As it comes from a file."""
    return torch.jit.load(io.BytesIO(torch.jit.freeze(torch.jit.script(module.eval())).save_to_buffer()))


def flat(node):
    yield node
    for child in node["children"]:
        yield from flat(child)


class InspectTest(CliTest):
    def save(self, module, *example):
        path = self.folder / "model.pt"
        if not isinstance(module, torch.jit.ScriptModule):
            module = torch.jit.trace(module, example, check_trace=False) if example else torch.jit.script(module)
        module.save(str(path))
        return path

    def inspect(self, module, *example, status=0):
        return self.json_of("inspect", self.save(module, *example), status=status)

    def table(self, module, *options, status=0):
        return self.run_fsdp2("inspect", self.save(module), *options, status=status).stdout


class Trees(InspectTest):
    def expect_tree(self, model, *example):
        """Every number and name from Python's own module."""
        found = self.inspect(model, *example)
        nodes = {node["path"]: node for node in flat(found["root"])}
        modules = dict(model.named_modules(remove_duplicate=False))
        self.assertEqual(set(nodes), set(modules))
        names = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        for path, module in modules.items():
            node = nodes[path]
            own = dict(module.named_parameters(prefix=path, recurse=False))
            below = list(module.parameters())  # a tied one once
            self.assertEqual(node["class"], type(module).__name__)
            self.assertEqual(node["own_elements"], sum(p.numel() for p in own.values()), path)
            self.assertEqual(node["elements"], sum(p.numel() for p in below), path)
            self.assertEqual(node["trainable_elements"], sum(p.numel() for p in below if p.requires_grad), path)
            self.assertEqual(node["bytes"], sum(p.nbytes for p in below), path)
            self.assertEqual(node["buffer_bytes"], sum(b.nbytes for b in module.buffers()), path)
            self.assertEqual(set(node["dtypes"]), {str(p.dtype).removeprefix("torch.") for p in below})
            self.assertEqual({p["name"] for p in node["parameters"]}, set(own))
            for parameter in node["parameters"]:
                tensor = own[parameter["name"]]
                self.assertEqual(parameter["shape"], list(tensor.shape))
                self.assertEqual(parameter["dtype"], str(tensor.dtype).removeprefix("torch."))
                self.assertEqual(parameter["bytes"], tensor.nbytes)
                self.assertEqual(parameter["trainable"], tensor.requires_grad)
                self.assertEqual(set(parameter["tied_with"]), set(names[id(tensor)]) - {parameter["name"]})
        self.assertTrue(found["can_be_sharded"])
        self.assertEqual(found["tensors"], len(names))
        return found, nodes

    def read_by(self, nodes, name):
        path = name.rpartition(".")[0]
        (parameter,) = [p for p in nodes[path]["parameters"] if p["name"] == name]
        return parameter["read_by"]

    def test_scripted(self):
        found, nodes = self.expect_tree(Stack())
        self.assertFalse(nodes["layers"]["has_forward"])
        self.assertTrue(nodes["layers.1"]["called"])
        self.assertEqual(self.read_by(nodes, "layers.1.up.weight"), ["layers.1.up"])
        self.assertEqual(found["refusals"], [])

    def test_traced_and_tied(self):
        model = Stack()
        model.head.weight = model.embed.weight
        _, nodes = self.expect_tree(model, torch.zeros(2, 16, dtype=torch.long))
        # A trace reads a tied weight in the root and hands it on.
        self.assertIn("", self.read_by(nodes, "embed.weight"))
        table = self.run_fsdp2("inspect", self.folder / "model.pt").stdout
        self.assertIn("weight tied with `head.weight`", table)
        self.assertIn("weight read by `(root)`", table)

    def test_a_parent_that_reads(self):
        _, nodes = self.expect_tree(nn.TransformerEncoderLayer(16, 2, batch_first=True))
        self.assertIn("self_attn", self.read_by(nodes, "self_attn.out_proj.weight"))
        table = self.run_fsdp2("inspect", self.folder / "model.pt").stdout
        (line,) = [line for line in table.splitlines() if "out_proj" in line]
        self.assertIn("weight, bias read by", line)
        self.assertIn("`self_attn`", line)

    def test_lists_of_weights(self):
        _, nodes = self.expect_tree(nn.LSTM(4, 5, 2))
        self.assertEqual(self.read_by(nodes, "weight_ih_l0"), [""])

    def test_dtypes(self):
        model = nn.Sequential(nn.Linear(4, 4).half(), nn.Linear(4, 4).bfloat16(), nn.Linear(4, 4).double())
        model[0].register_parameter("codes", nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False))
        self.expect_tree(model)
        self.assertIn("float16, bfloat16, float64", self.run_fsdp2("inspect", self.folder / "model.pt").stdout)

    def test_frozen_parameters(self):
        model = Stack()
        model.layers[1].requires_grad_(False)
        model.layers[2].up.weight.requires_grad_(False)
        self.expect_tree(model)
        lines = self.run_fsdp2("inspect", self.folder / "model.pt").stdout.splitlines()
        (row,) = [line for line in lines if line.split()[:2] == ["1", "Layer"]]
        self.assertTrue(row.endswith("  frozen"), row)
        self.assertIn("frozen: `weight`", "\n".join(lines))
        lines = self.run_fsdp2("inspect", self.folder / "model.pt", "--depth", "2").stdout.splitlines()
        (row,) = [line for line in lines if line.split()[:2] == ["2", "Layer"]]
        self.assertTrue(row.endswith("  partly frozen"), row)

    def test_one_module_under_two_names(self):
        model = Twice()
        found = self.inspect(model)
        nodes = {node["path"]: node for node in flat(found["root"])}
        self.assertNotIn("same_module_as", nodes["first"])
        self.assertEqual(nodes["second"]["same_module_as"], "first")
        self.assertEqual(nodes["second"]["parameters"][0]["tied_with"], [])
        self.assertEqual(found["root"]["elements"], sum(p.numel() for p in model.parameters()))
        self.assertIn("the same module as `first`", self.run_fsdp2("inspect", self.folder / "model.pt").stdout)

    def test_a_module_that_nothing_calls(self):
        found = self.inspect(Uncalled())
        nodes = {node["path"]: node for node in flat(found["root"])}
        self.assertFalse(nodes["spare"]["called"])
        self.assertIn("not called", self.run_fsdp2("inspect", self.folder / "model.pt").stdout)

    def test_saved_on_cuda(self):
        """No GPU is needed to look at a model whose file says that its tensors were on one."""
        plain, moved = self.save(Stack()), self.folder / "cuda.pt"
        with zipfile.ZipFile(plain) as source, zipfile.ZipFile(moved, "w") as target:
            for name in source.namelist():
                data = source.read(name)
                if name.endswith("/data.pkl"):
                    self.assertEqual(data.count(b"X\x03\x00\x00\x00cpu"), 1)
                    data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
                target.writestr(name, data)
        self.assertEqual(self.json_of("inspect", moved)["root"], self.json_of("inspect", plain)["root"])


class Tables(InspectTest):
    def test_equal_layers_take_one_line(self):
        model = Stack(100)
        table = self.table(model)
        self.assertLess(len(table.splitlines()), 35)
        (row,) = [line for line in table.splitlines() if "100 x Layer" in line]
        self.assertIn("0 .. 99", row)
        self.assertIn(f"{sum(p.numel() for p in model.layers[0].parameters())}", row)
        self.assertGreater(len(self.table(model, "--all").splitlines()), 300)
        self.assertEqual(len(self.inspect(model)["root"]["children"][1]["children"]), 100)

    def test_layers_that_differ_do_not(self):
        model = Stack(6)
        model.layers[3].up.bias.requires_grad_(False)
        table = self.table(model)
        for row in ("0 .. 2", "3 x Layer", "4 .. 5", "2 x Layer"):
            self.assertIn(row, table)
        self.assertEqual(table.count("frozen: `bias`"), 1)

    def test_depth(self):
        table = self.table(Stack(), "--depth", "1").split("\n\n")[1]
        names = [line.split()[0] for line in table.splitlines()[1:]]
        self.assertEqual(names, ["(root)", "embed", "layers", "norm", "head"])
        self.assertEqual(len(self.table(Stack(), "--depth", "0").split("\n\n")[1].splitlines()), 2)

    def test_counts_of_the_heading(self):
        model = Stack()
        count = sum(p.numel() for p in model.parameters())
        first = self.table(model).splitlines()[0]
        self.assertIn(f"{len(list(model.modules()))} modules, {count:,} parameters in ", first)
        self.assertIn(f"{count * 4 / 1024:.1f} KiB (float32), buffers ", first)

    def test_command_line(self):
        self.assertIn("Did you mean --depth?", self.run_fsdp2("inspect", "m.pt", "--deth", "2", status=2).stderr)
        self.run_fsdp2("inspect", status=2)
        self.run_fsdp2("inspect", "m.pt", "--depth", "-1", status=2)
        self.assertIn("Examples:\n  fsdp2 inspect model.pt", self.run_fsdp2("inspect", "--help").stdout)


class Suggestions(InspectTest):
    def test_layers(self):
        model = Stack(16)
        found = self.inspect(model)["suggestion"]
        self.assertEqual(found["wrap"], {"policy": "transformer", "layer_classes": ["Layer"]})
        self.assertEqual(found["plan"]["ranks"], 8)
        self.assertEqual(found["plan"]["units"], 16 + 1)
        layer = list(model.layers[0].parameters())
        padding = found["plan"]["largest_unit_bytes"] - sum(p.nbytes for p in layer)
        self.assertTrue(0 <= padding <= 64 * len(layer) + 64 * 8, padding)  # of small units, as README says
        self.assertEqual(found["plan"]["parameter_bytes"], sum(p.nbytes for p in model.parameters()))
        self.assertLess(found["plan"]["whole_at_once_share"], 0.5)
        share = sum(p.numel() for p in model.layers.parameters()) / sum(p.numel() for p in model.parameters())
        self.assertIn(f"16 modules of class Layer hold {100 * share:.1f} %", found["why"])

    def test_toml_can_be_pasted_with_its_remarks(self):
        text = self.table(Stack())
        pasted = tomllib.loads("[fsdp]\nstrategy = 'full_shard'\n" + text[text.index("# 3 modules of class Layer"):])
        self.assertEqual(pasted["fsdp"]["wrap"], self.inspect(Stack())["suggestion"]["wrap"])

    def test_pytorch_s_own_layers(self):
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 4, enable_nested_tensor=False)
        wrap = self.inspect(encoder)["suggestion"]["wrap"]
        self.assertEqual(wrap["layer_classes"], ["TransformerEncoderLayer"])

    def test_nothing_repeats(self):
        for model, policy in ((TableAndHead(), "none"), (Different(), "size")):
            found = self.inspect(model)["suggestion"]
            self.assertEqual(found["wrap"]["policy"], policy)
            least = found["wrap"].get("min_num_params", float("inf"))
            larger = [part for part in model.children() if sum(p.numel() for p in part.parameters()) > least]
            self.assertEqual(found["plan"]["units"], len(larger) + 1)

    def test_classes_that_repeat(self):
        model = Stack(5)
        found = {row["class"]: row for row in self.inspect(model)["repeated_classes"]}
        for name, kind in (("Layer", Layer), ("Linear", nn.Linear)):
            modules = {path: m for path, m in model.named_modules() if isinstance(m, kind)}
            counts = [sum(p.numel() for p in m.parameters()) for m in modules.values()]
            self.assertEqual(set(found[name]["modules"]), set(modules))
            self.assertEqual(found[name]["elements"], sum(counts))
            self.assertEqual((found[name]["least_elements"], found[name]["most_elements"]), (min(counts), max(counts)))
            self.assertTrue(found[name]["candidate"])
        self.assertNotIn("Embedding", found)

    def test_modules_in_forks_are_no_candidates(self):
        found = self.inspect(Forks())
        self.assertTrue(found["can_be_sharded"])
        (row,) = [row for row in found["repeated_classes"] if row["class"] == "Layer"]
        self.assertFalse(row["candidate"])
        self.assertIn("runs inside torch.jit.fork", row["why_not"])
        (note,) = found["notes"]
        self.assertTrue(note.startswith("`layers.0`, of class Layer, runs inside torch.jit.fork"), note)
        self.assertIn("(as 3 more do)", note)
        table = self.run_fsdp2("inspect", self.folder / "model.pt").stdout
        self.assertIn("4 x Layer", table)
        self.assertNotIn("layer_classes", found["suggestion"]["wrap"])

    def test_modules_that_return_futures_are_no_candidates(self):
        found = self.inspect(WaitsOutside())
        (row,) = [row for row in found["repeated_classes"] if row["class"] == "ReturnsFuture"]
        self.assertIn("returns a future", row["why_not"])
        self.assertNotIn("ReturnsFuture", found["suggestion"]["wrap"].get("layer_classes", []))


class Refusals(InspectTest):
    def expect_refused(self, model, *texts):
        """Each text in a refusal of its own, no more of them, and the tree is there all the same."""
        found = self.inspect(model, status=1)
        self.assertFalse(found["can_be_sharded"])
        messages = [refusal["message"] for refusal in found["refusals"]]
        self.assertEqual(len(messages), len(texts), messages)
        for text, message in zip(texts, messages):
            self.assertIn(text, message)
        printed = self.run_fsdp2("inspect", self.folder / "model.pt", status=1).stdout
        self.assertIn("It cannot be sharded:\n", printed)
        for message in messages:
            self.assertIn("  - " + message, printed)
        self.assertEqual({node["path"] for node in flat(found["root"])}, {path for path, _ in model.named_modules()})
        return found

    def test_tensors_that_cannot_be_cut(self):
        ones = torch.ones(4, 8)
        for tensor, text in (
            (ones.t(), "it is not contiguous (strides [1, 8] for shape [8, 4])"),
            (torch.tensor(1.0), "`odd` has no dimensions"),
            (ones.to_sparse(), "its layout is Sparse"),
            (torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8), "it is quantized"),
            (ones.to(torch.float8_e4m3fn), "its element type is Float8_e4m3fn"),
            (ones.to("meta"), "it is on the meta device"),
        ):
            with self.subTest(text):
                found = self.expect_refused(One(tensor), text)
                self.assertEqual(found["refusals"][0]["parameter"], "odd")
                self.assertEqual(found["refusals"][0]["code"], "unsupported")

    def test_shared_memory(self):
        model = Around(nn.Linear(4, 4), nn.Linear(4, 4))
        model.parts[1].weight = nn.Parameter(model.parts[0].weight.data)
        self.expect_refused(model, "`parts.1.weight` cannot be sharded: it shares its memory with `parts.0.weight`")
        self.expect_refused(SharedWithBuffer(), "`linear.weight` cannot be sharded: it shares its memory with the attr")

    def test_a_parameter_in_a_dict(self):
        self.expect_refused(InDict(), "`linear.weight` cannot be sharded: it lies inside the attribute `named`")

    def test_a_hook_of_the_root(self):
        layer = nn.Linear(4, 4)
        layer.register_forward_pre_hook(shifts)
        self.expect_refused(layer, "a forward hook of the root reads parameter `bias`")

    def test_no_parameters(self):
        self.expect_refused(Around(nn.ReLU()), "the model has no parameters")

    def test_frozen(self):
        self.expect_refused(frozen(Layer()), "the module was frozen by torch.jit.freeze")
        self.expect_refused(Beside(nn.ReLU(), frozen(Layer())), "`second` was frozen by torch.jit.freeze")

    def test_a_frozen_part_beside_others_stays_whole(self):
        found = self.inspect(Beside(Layer(), frozen(Layer())))
        self.assertTrue(found["can_be_sharded"])
        self.assertIn("`second` was frozen by torch.jit.freeze", found["notes"][0])
        nodes = {node["path"]: node for node in flat(found["root"])}
        self.assertTrue(nodes["second"]["frozen_by_freeze"])

    def test_all_of_them_at_once(self):
        model = Around(InDict(), One(torch.ones(4, 8).t()), One(torch.tensor(1.0)))
        self.expect_refused(
            model,
            "`parts.1.odd` cannot be sharded: it is not contiguous",
            "`parts.0.linear.weight` cannot be sharded: it lies inside",
            "`parts.2.odd` has no dimensions",
        )
        self.assertIn("# Once nothing stands against", self.run_fsdp2("inspect", self.folder / "model.pt", status=1).stdout)


class Files(InspectTest):
    def expect_error(self, path, text, code="invalid_argument"):
        done = self.run_fsdp2("inspect", path, status=1)
        self.assertTrue(done.stderr.startswith(f"fsdp2: {path}"), done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "")
        error = self.json_of("inspect", path, status=1)["error"]
        self.assertEqual(error["code"], code)
        self.assertEqual(error["file"], str(path))

    def test_what_is_no_model(self):
        self.expect_error(self.folder / "none.pt", "No such file", "not_found")
        self.expect_error(self.folder, "is not a regular file")
        self.expect_error(self.write("empty.pt", ""), "is empty")
        self.expect_error(self.write("text.pt", "a" * 1000), "is not a TorchScript file: it is no archive")
        for old in (False, True):
            path = self.folder / "eager.pt"
            torch.save(Layer().state_dict(), path, _use_new_zipfile_serialization=not old)
            self.expect_error(path, "torch.save wrote them" if old else "it was written by torch.save")

    def test_archives_without_torchscript(self):
        path = self.folder / "plain.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("notes/a.txt", "text")
        self.expect_error(path, "it is a zip that holds no TorchScript; write it with torch.jit.script")
        path = self.folder / "export.pt2"
        torch.export.save(torch.export.export(Layer(), (torch.ones(2, 16),)), path)
        self.expect_error(path, "the archive holds no TorchScript, as one of torch.export; write it with torch.jit.script")

    def test_a_file_that_was_cut_short(self):
        path = self.save(Stack())
        for share in (0.3, 0.6, 0.99):
            cut = self.folder / "cut.pt"
            shutil.copy(path, cut)
            os.truncate(cut, int(path.stat().st_size * share))
            self.expect_error(cut, "the archive is damaged, or was cut short")


class Memory(InspectTest):
    def peak(self, *arguments):
        process = subprocess.Popen([FSDP2, *map(str, arguments)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_maxrss * 1024

    def test_weights_are_not_read(self):
        model = nn.Sequential(*[nn.Linear(4096, 4096, bias=False) for _ in range(5)])
        for parameter in model.parameters():
            parameter.data.zero_()
        kept = self.save(model), self.folder / "frozen.pt"
        frozen(Around(*[nn.Conv1d(4096, 4096, 4, bias=False) for _ in range(1)])).save(str(kept[1]))
        _, base = self.peak("strategies")
        for path, expected in zip(kept, (0, 1)):
            self.assertGreater(path.stat().st_size, 200 << 20)
            status, peak = self.peak("inspect", path)
            self.assertEqual(status, expected)
            self.assertLess(peak - base, 40 << 20)


if __name__ == "__main__":
    unittest.main()
