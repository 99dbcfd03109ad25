"""Models for mixed precision: what dtypes reach a unit, and parameters of two dtypes in one."""
import torch
from torch import nn

from values import spread_parameters


class Seeing(nn.Module):
    """Notes the dtypes of its inputs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.seen_x: int = -1
        self.seen_extra: int = -1
        self.seen_mask: int = -1
        self.seen_count: int = -1

    def forward(self, x, extra, mask, count):
        self.seen_x = x.dtype
        self.seen_extra = extra.dtype
        self.seen_mask = mask.dtype
        self.seen_count = count.dtype
        y = self.linear((x + extra).to(self.linear.weight.dtype))
        return y.masked_fill(mask, 0.0) * count


class SeeingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Seeing()
        self.second = Seeing()

    def forward(self, x, extra, mask, count):
        return self.second(self.first(x, extra, mask, count), extra, mask, count)


class TwoStored(nn.Module):
    """Stored in two dtypes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = nn.Parameter(torch.empty(8, 8))

    def forward(self, x):
        return torch.tanh(self.linear(x)) @ self.table.to(self.linear.weight.dtype)


class TwoStoredModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([TwoStored(), TwoStored()])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def two_stored(trains):
    module = spread_parameters(TwoStoredModel())
    for layer in module.layers:
        layer.table.data = layer.table.data.bfloat16()
        layer.table.requires_grad_(trains)
    return module


def export(save):
    save("Seeing", torch.jit.script(spread_parameters(SeeingModel())))
    save("TwoStored", torch.jit.script(two_stored(True)))
    save("TwoStored_frozen", torch.jit.script(two_stored(False)))
