"""Units whose results leave by other ways than their outputs."""
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn

from odd import Layer
from values import spread_parameters


class ThroughAttribute(nn.Module):
    """Keeps a loss of its own for whoever asks, as a mixture of experts does."""
    extra: Tensor

    def __init__(self):
        super().__init__()
        self.inner = Layer()
        self.extra = torch.zeros(())

    def forward(self, x):
        self.extra = self.inner(x).square().mean()
        return 0.5 * x


class ReadsAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = ThroughAttribute()
        self.second = ThroughAttribute()
        self.last = Layer()

    def forward(self, x):
        y = self.second(self.first(x))
        return self.last(y), self.first.extra + self.second.extra


class ThroughListAttribute(nn.Module):
    """Keeps its inner results in a list that stays the same object."""
    kept: List[Tensor]

    def __init__(self):
        super().__init__()
        self.inner = Layer()
        self.kept = []

    def forward(self, x):
        self.kept.clear()
        self.kept.append(self.inner(x))
        self.kept.append(self.inner.up.weight)
        return 0.5 * x


class ReadsListAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = ThroughListAttribute()
        self.second = ThroughListAttribute()

    def forward(self, x):
        y = self.second(self.first(x))
        return y, torch.tanh(self.first.kept[0] * self.second.kept[0]) @ self.first.kept[1]


class ThroughList(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x, out: List[Tensor]):
        out.append(self.inner(x))
        out.append(self.inner.up.weight.t())
        return 0.5 * x


class ReadsList(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = ThroughList()
        self.second = ThroughList()
        self.last = Layer()

    def forward(self, x):
        out: List[Tensor] = []
        y = self.second(self.first(x, out), out)
        return self.last(y), torch.tanh(out[0] * out[2]) @ out[1] @ out[3]


class ThroughDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x, out: Dict[str, Tensor]):
        out["h"] = self.inner(x)
        return 0.5 * x


class ReadsDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = ThroughDict()
        self.second = ThroughDict()

    def forward(self, x):
        out: Dict[str, Tensor] = {}
        self.first(x, out)
        self.second(out["h"], out)
        return out["h"]


@torch.jit.script
class Box:
    def __init__(self, content: Tensor):
        self.content = content


class ReturnsBox(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x) -> Box:
        return Box(self.inner(x))


class TakesBox(nn.Module):
    """Reads what it is given and puts something else in its place."""

    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, box: Box):
        h = self.inner(box.content)
        box.content = self.inner(h)
        return h


class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = ReturnsBox()
        self.second = TakesBox()

    def forward(self, x):
        box = self.first(x)
        y = self.second(box)
        return y * box.content


class GivesParameters(nn.Module):
    """Hands out its parameters: themselves, in containers, and views of them."""

    def __init__(self):
        super().__init__()
        self.inner = Layer()

    def forward(self, x) -> Tuple[Tensor, Tensor, Dict[str, Tensor], List[Tensor]]:
        up, down = self.inner.up, self.inner.down
        return self.inner(x), up.weight, {"bias": up.bias}, [down.weight.t(), down.weight[1]]


class TakesParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GivesParameters()
        self.second = GivesParameters()

    def forward(self, x):
        y, weight, named, views = self.first(x)
        z, other, other_named, other_views = self.second(y @ weight + named["bias"])
        return z @ other @ views[0] + other_named["bias"] * views[1], other_views[0]


def export(save):
    for make in (ReadsAttributes, ReadsListAttributes, ReadsList, ReadsDict, Boxes, TakesParameters):
        save(make.__name__, torch.jit.script(spread_parameters(make())))
