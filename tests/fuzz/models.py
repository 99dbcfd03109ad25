"""The random models: blocks of one signature, one after the other. All of it is scripted.

Results are smooth in all weights, without kinks and with branches on integers alone: where both sides round
differently, they differ by little.
"""
from dataclasses import dataclass
from typing import List

import torch
from torch import Tensor, nn

import layers

VOCABULARY = 11
OUTPUTS = 2


class Linear(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


class Wide(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.up = layers.Linear(case["width"], case["hidden"], bias=False)
        self.down = layers.Linear(case["hidden"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Norm(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.layer = layers.LayerNorm(case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return self.layer(x + 0.1 * x * x)


class Embedding(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return x + self.table(ids)


class Convolution(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.layer = layers.Conv1d(1, case["hidden"], 3, padding=1)

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return torch.sin(self.layer(x.unsqueeze(1)).mean(1))


class Residual(nn.Module):
    def __init__(self, case, inner):
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        y = x
        for block in self.inner:
            y = block(y, ids, flag)
        return x + y


class Shared(nn.Module):
    """One layer twice."""

    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return self.layer(torch.sin(self.layer(x)))


class Tied(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.a = layers.Linear(case["width"], case["width"])
        self.b = layers.Linear(case["width"], case["width"])
        self.b.weight = self.a.weight

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


class Unused(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])
        self.spare = layers.Linear(case["width"], 2)

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return self.layer(x)


class Tiny(nn.Module):
    """Fewer elements than ranks."""

    def __init__(self, case):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5]))
        self.shifts = nn.Parameter(torch.tensor([[0.1], [-0.3], [0.2]]))

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        return x * self.scale + self.shifts.sum()


class BranchOnData(nn.Module):
    """Ranks may go different ways, through the same parameters."""

    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        y = self.layer(x)
        if bool(ids.sum() % 2 == 0):
            return torch.tanh(y)
        return 0.5 * y


class BranchOverLayers(nn.Module):
    """All ranks go one way, and leave the other's parameters without gradients."""

    def __init__(self, case):
        super().__init__()
        self.a = layers.Linear(case["width"], case["width"])
        self.b = layers.Linear(case["width"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        if bool(flag > 0):
            return torch.tanh(self.a(x))
        return torch.tanh(self.b(x))


class InPlace(nn.Module):
    """The output of a layer is changed, then a view of it."""

    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        y = self.layer(x)
        y.mul_(2.0)
        y[:, 0].add_(x[:, 1])
        y.tanh_()
        return y


class HalvesInput(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer = layers.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(0.5)
        return self.layer(x)


class InPlaceInput(nn.Module):
    """A layer changes its input, a view, which is read again."""

    def __init__(self, case):
        super().__init__()
        self.layer = HalvesInput(case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        y = (x + 1.0).view(x.size(0), x.size(1))
        return self.layer(y) + y


class Counting(nn.Module):
    """A buffer changes in forward."""

    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        self.calls.add_(1.0)
        return self.layer(x) * torch.cos(self.calls)


class BranchOnDtype(nn.Module):
    """Its result tells the dtype of its input."""

    def __init__(self, case):
        super().__init__()
        self.layer = layers.Linear(case["width"], case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        y = torch.tanh(self.layer(x))
        if x.dtype == torch.float32:
            return 0.5 * y
        return y


class Lists(nn.Module):
    """A layer that takes and gives lists."""

    def __init__(self, case):
        super().__init__()
        self.layer = OfList(case["width"])

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        parts = self.layer([x, torch.sin(x)])
        return parts[0] * parts[1]


class OfList(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer = layers.Linear(width, width)

    def forward(self, parts: List[Tensor]) -> List[Tensor]:
        return [self.layer(part) for part in parts]


@dataclass
class Kind:
    build: type
    layers: tuple  # modules inside that may be units, or frozen
    weight: int = 2
    trains: bool = True  # has parameters of its own or in its layers
    nests: bool = False  # holds blocks
    tied: bool = False  # its layers share a weight
    leaves_out: bool = False  # some of its layers may not run
    changes_input: bool = False  # its layer does


KINDS = {
    "linear": Kind(Linear, ("layer",), weight=3),
    "wide": Kind(Wide, ("up", "down"), weight=3),
    "norm": Kind(Norm, ("layer",)),
    "embedding": Kind(Embedding, ("table",)),
    "convolution": Kind(Convolution, ("layer",)),
    "residual": Kind(Residual, (), weight=4, nests=True),
    "shared": Kind(Shared, ("layer",)),
    "tied": Kind(Tied, ("a", "b"), weight=3, tied=True),
    "unused": Kind(Unused, ("layer", "spare"), leaves_out=True),
    "tiny": Kind(Tiny, ()),
    "branch on data": Kind(BranchOnData, ("layer",)),
    "branch over layers": Kind(BranchOverLayers, ("a", "b"), leaves_out=True),
    "branch on dtype": Kind(BranchOnDtype, ("layer",)),
    "in place": Kind(InPlace, ("layer",)),
    "in place, input": Kind(InPlaceInput, ("layer",), changes_input=True),
    "counting": Kind(Counting, ("layer",)),
    "lists": Kind(Lists, ("layer",)),
}


class Model(nn.Module):
    def __init__(self, case):
        super().__init__()

        def build(spec):
            kind = KINDS[spec["kind"]]
            if kind.nests:
                return kind.build(case, [build(inner) for inner in spec["inner"]])
            return kind.build(case)

        self.blocks = nn.ModuleList([build(spec) for spec in case["blocks"]])
        # By its number: in a second place of the list it would be scripted as a second module with tied parameters.
        self.again = -1 if case["block_again"] is None else case["block_again"]
        self.head = layers.Linear(case["width"], OUTPUTS)

    def forward(self, x: Tensor, ids: Tensor, flag: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, ids, flag)
        for i, block in enumerate(self.blocks):
            if i == self.again:
                x = block(x, ids, flag)
        return self.head(torch.tanh(x))  # bounded, so that no draw diverges


def make_model(case, frozen):
    """The same weights in every process. `frozen`: paths of modules."""
    torch.manual_seed(case["seed"])
    model = Model(case)
    for path in frozen:
        model.get_submodule(path).requires_grad_(False)
    return model


def make_data(case):
    """[step, micro-batch, rank, sample, ...]; the flag is that of all ranks."""
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    of_step = (case["steps"], case["micro_batches"])
    of_sample = (*of_step, case["world"], case["batch"])
    return {
        "x": torch.randn(*of_sample, case["width"], generator=generator),
        "ids": torch.randint(VOCABULARY, of_sample, generator=generator),
        "flag": torch.randint(2, of_step, generator=generator),
        "target": torch.randn(*of_sample, OUTPUTS, generator=generator),
    }
