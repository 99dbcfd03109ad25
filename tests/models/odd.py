"""Modules that are legal TorchScript and unusual for a sharding engine. Each class says what is unusual."""
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from values import fill_parameters, spread_parameters


class Layer(nn.Module):
    """The ordinary unit of this file: two linear layers, so that backward needs the weights."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


# ---- inputs and outputs that are not tensors


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class TupleUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, both: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, int]]:
        return self.inner(both[0]), (self.inner(both[1]), 3)


class ListUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, all: List[Tensor]) -> List[Tensor]:
        return [self.inner(x) for x in all]


class DictUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, named: Dict[str, Tensor]) -> Dict[str, List[Tensor]]:
        result: Dict[str, List[Tensor]] = {}
        for key, value in named.items():
            result[key] = [self.inner(value), value]
        return result


class OptionalUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x: Tensor, extra: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
        if extra is None:
            return self.inner(x), None
        return self.inner(x + extra), extra * 2


class NamedTupleUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, pair: Pair) -> Pair:
        return Pair(self.inner(pair.right), pair.left)


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.tuple_unit = TupleUnit()
        self.list_unit = ListUnit()
        self.dict_unit = DictUnit()
        self.optional_unit = OptionalUnit()
        self.named_tuple_unit = NamedTupleUnit()

    def forward(self, x):
        a, (b, n) = self.tuple_unit((x, x * 2))
        both = self.list_unit([a, b * n])
        named = self.dict_unit({"a": both[0], "b": both[1]})
        c, nothing = self.optional_unit(named["a"][0] + named["b"][1], None)
        d, twice = self.optional_unit(c, named["b"][0])
        if twice is not None:
            d = d + twice
        pair = self.named_tuple_unit(Pair(d, c))
        return pair.left + pair.right


class DictOutput(nn.Module):
    """The root itself takes and returns dictionaries."""

    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
        out = self.layer(batch["x"])
        return {"out": out, "loss": (out - batch["y"]).pow(2).mean()}


class TwoOutputs(nn.Module):
    """The loss may leave the second output, and with it a unit, without a gradient."""

    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x):
        return self.a(x), self.b(x)


# ---- which units run, and how often


class SideBySide(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x):
        return self.b(self.a(x) + self.a(x * 0.5))


class Chain(SideBySide):
    def forward(self, x):
        return self.b(self.a(self.a(x)))


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x, times: int):
        for _ in range(times):
            x = self.a(x)
        return self.b(x)


class Chosen(nn.Module):
    """flag 1: a; flag 2: b; else neither. `never` does not run at all."""

    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.a = Layer()
        self.b = Layer()
        self.never = Layer()

    def forward(self, x, flag: int):
        x = self.first(x)
        if flag == 1:
            x = self.a(x)
        elif flag == 2:
            x = self.b(x)
        elif flag == 3:
            x = self.never(x)
        return x


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return self.up(x) * torch.tanh(x)


class ForksItsPart(nn.Module):
    """And goes on after the wait."""

    def __init__(self):
        super().__init__()
        self.first = Half()
        self.down = nn.Linear(8, 8)

    def forward(self, x):
        part = torch.jit.fork(self.first, x)
        other = self.down(x)
        return self.down(torch.jit.wait(part)) + other


class ReturnsFuture(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Half()

    def forward(self, x: torch.Tensor) -> torch.jit.Future[torch.Tensor]:
        return torch.jit.fork(self.first, x)


class WaitsOutside(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = ReturnsFuture()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(self.layer(x))


class ForksInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([ForksItsPart() for _ in range(2)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class WideBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 256)
        self.down = nn.Linear(256, 256)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Wide(nn.Module):
    """Far more parameters than activations."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([WideBlock() for _ in range(3)])
        self.head = nn.Linear(256, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()
        self.scale = nn.Linear(8, 8)

    def forward(self, x):
        return self.scale(self.inner(x)) + x


class Nested(nn.Module):
    """Units inside units inside the root."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)
        self.outers = nn.ModuleList([Outer() for _ in range(3)])

    def forward(self, x):
        for outer in self.outers:
            x = outer(x)
        return self.head(x)


class OneObjectTwoPaths(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = self.a
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.b(self.a(x)))


class Forked(nn.Module):
    """Units called in a fork: every rank may run them in another order."""

    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x):
        a = torch.jit.fork(self.a, x)
        b = torch.jit.fork(self.b, x)
        return torch.jit.wait(a) + torch.jit.wait(b)


# ---- changes in place


class ReluFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x):
        x.relu_()
        return self.inner(x)


class ReluOfLinear(nn.Module):
    """The unit overwrites its input; nobody reads the input again."""

    def __init__(self):
        super().__init__()
        self.before = nn.Linear(8, 8)
        self.unit = ReluFirst()

    def forward(self, x):
        return self.unit(self.before(x))


class ReluReadAgain(ReluOfLinear):
    """The caller reads the overwritten input."""

    def forward(self, x):
        h = self.before(x)
        y = self.unit(h)
        return y + h * 3


class ReluOfView(ReluOfLinear):
    """The input is a view, and the caller reads its base."""

    def forward(self, x):
        h = self.before(x)
        y = self.unit(h[:, :, :].view(-1, 8)[1:])
        return y.sum() + (h * h).sum()


class ReluOfViewNotRead(ReluOfLinear):
    def forward(self, x):
        h = self.before(x)
        return self.unit(h.view(-1, 8)[1:])


class AddsToBuffer(nn.Module):
    """The unit writes into a tensor of its caller that needs no gradient."""

    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x, total):
        y = self.inner(x)
        total.add_(y.detach())
        return y


class WritesBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit = AddsToBuffer()

    def forward(self, x):
        total = torch.zeros_like(x)
        y = self.unit(x, total)
        y = self.unit(y, total)
        return y + total


class OutputChanged(nn.Module):
    """The caller changes outputs of its unit in place; `kind` says how."""

    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x, kind: int):
        h = self.a(x)
        if kind == 0:
            h.add_(1.0)
        elif kind == 1:
            h.mul_(x)
        elif kind == 2:
            h[0].mul_(2.0)
        elif kind == 3:
            h.transpose(0, 1).mul_(0.5)
        elif kind == 4:
            h[:, :, 1:].relu_()
        elif kind == 5:
            h.view(-1).tanh_()
        elif kind == 6:
            h = h.detach()
            h.add_(self.a(x))
        elif kind == 7:
            h.unsqueeze_(0)
            h = h.squeeze(0)
        return self.b(h)


class ReturnsViews(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x):
        y = self.inner(x)
        return y[0], y[1:], x


class ViewsChanged(nn.Module):
    """A unit returns views of one tensor, and its input; one view is changed in place."""

    def __init__(self):
        super().__init__()
        self.a = ReturnsViews()
        self.b = Layer()

    def forward(self, x):
        head, rest, same = self.a(x)
        rest.mul_(2.0)
        return self.b(rest) + head + same[1:]


class ReadsOutputTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x):
        h = self.a(x)
        y = self.b(h * 2.0)
        h.add_(y)
        return h * y


# ---- parameters


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.empty(6, 3))

    def forward(self):
        return self.w * self.w


class SquareInside(nn.Module):
    """A unit without inputs below a root with an input."""

    def __init__(self):
        super().__init__()
        self.square = Square()
        self.scale = nn.Parameter(torch.empty(3))

    def forward(self, x):
        return (self.square() * self.scale * x).sum()


class AttentionUnit(nn.Module):
    """nn.MultiheadAttention reads the weight of its child out_proj without calling it."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = Layer()

    def forward(self, x):
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.mlp(x + y)


class AttentionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([AttentionUnit(), AttentionUnit()])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class ParentReads(nn.Module):
    """The root multiplies with a weight that belongs to a unit, outside that unit's forward."""

    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x):
        return self.b(self.a(x)) + x @ self.a.up.weight


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Normalised(), Normalised()])
        self.head = nn.Linear(8, 2)
        self.register_buffer("offset", torch.full((2,), 0.5))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x) + self.offset


class AddsInto(nn.Module):
    """All that it computes leaves through its input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x) -> None:
        x.add_(torch.tanh(self.linear(x.clone())))


class ReturnsNothing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.unit = AddsInto()
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        h = self.first(x) * 2.0  # of which autograd saves nothing
        self.unit(h)
        return self.head(h)


class ThreeLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()
        self.c = Layer()

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class Tiny(nn.Module):
    """One and three elements: shorter than the number of ranks."""

    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(1))
        self.q = nn.Parameter(torch.arange(3.0))

    def forward(self):
        return (self.p * self.q).sum()


class TinyUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(1))
        self.q = nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        return x * self.p + self.q.sum()


class TinyUnits(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.ModuleList([TinyUnit(), TinyUnit()])
        self.last = nn.Parameter(torch.full((2, 3), 0.25))

    def forward(self, x):
        for unit in self.units:
            x = unit(x)
        return x.sum() * self.last.sum()


class MixedDtypes(nn.Module):
    """A frozen bfloat16 table beside trainable float32 weights."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = nn.Parameter(torch.empty(8, 8), requires_grad=False)

    def forward(self, x):
        return torch.tanh(self.linear(x)) @ self.table.float()


class MixedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([MixedDtypes(), MixedDtypes()])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class TwoDtypes(nn.Module):
    """Two dtypes that train in one unit."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = nn.Parameter(torch.empty(8, 8, dtype=torch.float64))
        self.scale = nn.Parameter(torch.empty(8, dtype=torch.float64))

    def forward(self, x):
        return (torch.tanh(self.linear(x)).double() @ self.table * self.scale).float()


class TwoDtypesModel(MixedModel):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([TwoDtypes(), TwoDtypes()])


class ComplexLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 8, dtype=torch.complex64))
        self.phase = nn.Parameter(torch.empty(3, dtype=torch.complex64))

    def forward(self, x):
        y = (x.to(torch.complex64) @ self.weight) * self.phase.unsqueeze(1)
        return torch.tanh(y.real) + y.imag


class ComplexModel(MixedModel):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([ComplexLayer(), ComplexLayer()])


class ConvolutionModel(nn.Module):
    """4-D weights; `strided` keeps them in channels-last order."""

    def __init__(self, strided: bool):
        super().__init__()
        self.convolution = nn.Conv2d(3, 5, 3)
        self.head = nn.Linear(5, 2)
        if strided:
            self.convolution.weight.data = self.convolution.weight.data.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.head(self.convolution(x).mean((2, 3)))


class ScalarParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.scalar = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.linear(x) * self.scalar


class EmptyParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.none = nn.Parameter(torch.empty(0, 8))

    def forward(self, x):
        return self.linear(x).sum() + self.none.sum()


# ---- methods and errors


class Featured(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    @torch.jit.export
    def features(self, x):
        return torch.tanh(self.inner(x))

    def forward(self, x):
        return self.outer(self.features(x))


class CallsFeatures(nn.Module):
    """The root calls a method of its unit that is not forward."""

    def __init__(self):
        super().__init__()
        self.unit = Featured()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.unit.features(x))

    @torch.jit.export
    def whole(self, x):
        return self.head(self.unit(x) + self.unit.features(x))


class MayRaise(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()
        self.c = Layer()

    def forward(self, x, limit: float):
        x = self.a(x)
        x = self.b(x)
        if float(x.abs().max()) > limit:
            raise ValueError("activation above the limit")
        return self.c(x)


class RaisesInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x, limit: float):
        y = self.inner(x)
        if float(y.abs().max()) > limit:
            raise ValueError("activation above the limit")
        return y


class UnitMayRaise(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.unit = RaisesInside()
        self.c = Layer()

    def forward(self, x, limit: float):
        return self.c(self.unit(self.a(x), limit))


class ClipsItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(6, 8))
        self.layer = Layer()

    def forward(self, x):
        with torch.no_grad():
            self.table.clamp_(-0.1, 0.1)
        return self.layer(x @ self.table.t() @ self.table)


class NoGradInside(nn.Module):
    """A unit is used without gradients before it is used with them: the optimising executor's gradients would be wrong."""

    def __init__(self):
        super().__init__()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x):
        with torch.no_grad():
            scale = self.a(x).abs().mean()
        return self.b(self.a(x)) * scale + x


def frozen_parts(module):
    """Weights of `a` frozen with its biases trainable, all of `b` frozen, `c` trainable."""
    module.a.up.weight.requires_grad_(False)
    module.a.down.weight.requires_grad_(False)
    for parameter in module.b.parameters():
        parameter.requires_grad_(False)
    return module


def complex_numbers():
    module = spread_parameters(ComplexModel())
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_complex():
                parameter += 0.5j * parameter.flip(0)
    return module


def mixed():
    module = spread_parameters(MixedModel())
    for layer in module.layers:
        layer.table.data = layer.table.data.bfloat16()
    return module


def export(save):
    plain = [
        Containers, DictOutput, TwoOutputs, SideBySide, Chain, Loop, Chosen, Wide, ForksInside, WaitsOutside, Nested, OneObjectTwoPaths, Forked, ReluOfLinear,
        ReluReadAgain, ReluOfView, ReluOfViewNotRead, WritesBuffer, OutputChanged, ViewsChanged, ReadsOutputTwice, Square,
        SquareInside, AttentionModel, ParentReads, Buffers, ThreeLayers, CallsFeatures, MayRaise, UnitMayRaise, ClipsItself,
        ScalarParameter, EmptyParameter, ReturnsNothing, NoGradInside,
    ]
    for make in plain:
        save(make.__name__, torch.jit.script(spread_parameters(make())))
    save("Frozen", torch.jit.script(frozen_parts(spread_parameters(ThreeLayers()))))
    save("Double", torch.jit.script(spread_parameters(ThreeLayers()).double()))
    save("Mixed", torch.jit.script(mixed()))
    save("TwoDtypes", torch.jit.script(spread_parameters(TwoDtypesModel())))
    save("Complex", torch.jit.script(complex_numbers()))
    save("Tiny", torch.jit.script(Tiny()))
    save("TinyUnits", torch.jit.script(TinyUnits()))
    save("Convolution", torch.jit.script(spread_parameters(ConvolutionModel(False))))
    save("Strided", torch.jit.script(spread_parameters(ConvolutionModel(True))))
    save("ThreeLayers_traced", torch.jit.trace(spread_parameters(ThreeLayers()), torch.ones(2, 8)))
    save("ThreeLayers_filled", torch.jit.script(fill_parameters(ThreeLayers())))
    # A transformer layer of PyTorch itself, with its fused inference path.
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
    save("TorchTransformer", torch.jit.script(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train()))
