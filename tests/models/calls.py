"""Which parts run: through an interface, by a computed index, by a condition on data, or by nobody's call."""
import torch
from torch import Tensor, nn

from odd import Layer
from values import spread_parameters


@torch.jit.interface
class Maps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class ThroughInterface(nn.Module):
    """Which layer of the list runs is not known before it does."""
    one: Maps

    def __init__(self):
        super().__init__()
        self.one = Layer()
        self.layers = nn.ModuleList([Layer(), Layer(), Layer()])
        self.last = Layer()

    def forward(self, x, k: int):
        layer: Maps = self.layers[k]
        return self.last(layer.forward(self.one.forward(x)))


class OnData(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.a = Layer()
        self.b = Layer()

    def forward(self, x, flags):
        x = self.first(x)
        for flag in flags:
            if bool(flag > 0):
                x = self.a(x)
            else:
                x = self.b(x) * flag
        return x


class Uncalled(nn.Module):
    """Nothing here calls `spare`, but a host may."""

    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.spare = Layer()
        self.last = Layer()

    def forward(self, x):
        return self.last(self.first(x))


def export(save):
    for make in (ThroughInterface, OnData, Uncalled):
        save(make.__name__, torch.jit.script(spread_parameters(make())))
