"""Parameters that something else than their own attribute holds or reads."""
import io
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn

from odd import Layer
from values import spread_parameters


class Recurrent(nn.Module):
    """PyTorch's recurrent layers keep a list of their weights, and read that."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 8, batch_first=True)
        self.last = Layer()

    def forward(self, x):
        y, state = self.lstm(x)
        return self.last(self.gru(y)[0]), state[1]


class InList(nn.Module):
    weights: List[Tensor]

    def __init__(self, layer: Layer):
        super().__init__()
        self.layer = layer
        self.weights = [layer.up.weight, layer.down.weight]

    def forward(self, x):
        return torch.tanh(self.layer(x) @ self.weights[0]) @ self.weights[1]


class ListOverUnits(nn.Module):
    """A list in one unit that holds parameters of another."""

    def __init__(self):
        super().__init__()
        layer = Layer()
        self.first = layer
        self.second = InList(layer)
        self.last = Layer()

    def forward(self, x):
        return self.last(self.second(self.first(x)))


def scales(self, inputs: Tuple[Tensor], output: Tensor):
    return output * self.up.bias.exp()


def shifts(self, inputs: Tuple[Tensor]) -> Tuple[Tensor]:
    return (inputs[0] + self.down.bias,)


class Hooked(nn.Module):
    """Hooks run outside of the module's forward and read its parameters."""

    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.last = Layer()
        self.first.register_forward_hook(scales)
        self.first.register_forward_pre_hook(shifts)

    def forward(self, x):
        return self.last(self.first(x))


class InDict(nn.Module):
    named: Dict[str, Tensor]

    def __init__(self):
        super().__init__()
        self.layer = Layer()
        self.named = {"w": self.layer.up.weight}

    def forward(self, x):
        return self.layer(x) @ self.named["w"]


class SharedWithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()
        self.register_buffer("old", self.layer.up.weight.data)

    def forward(self, x):
        return self.layer(x) @ self.old


class SharedMemory(nn.Module):
    """Two parameters over the same memory, which is not what tied means."""

    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.last = Layer()
        self.last.up.weight = nn.Parameter(self.first.up.weight.data)

    def forward(self, x):
        return self.last(self.first(x))


class OneMemory(nn.Module):
    """Parameters side by side in one memory: no byte is shared."""

    def __init__(self):
        super().__init__()
        self.layer = spread_parameters(Layer())
        flat = torch.cat([p.detach().reshape(-1) for p in self.layer.parameters()])
        begin = 0
        for p in self.layer.parameters():
            p.data = flat[begin:begin + p.numel()].view(p.shape)
            begin += p.numel()

    def forward(self, x):
        return self.layer(x)


def frozen():
    """A layer with constants for parameters, as it comes from a file."""
    layer = torch.jit.freeze(torch.jit.script(spread_parameters(Layer()).eval()))
    return torch.jit.load(io.BytesIO(layer.save_to_buffer()))


class BesideFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.last = nn.Linear(8, 8)
        self.encoder = frozen()

    def forward(self, x):
        return self.last(self.encoder(self.first(x)))


class AroundFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = frozen()

    def forward(self, x):
        return 2 * self.encoder(x)


def export(save):
    for make in (Recurrent, ListOverUnits, InDict, SharedWithBuffer, SharedMemory, Hooked, BesideFrozen, AroundFrozen):
        save(make.__name__, torch.jit.script(spread_parameters(make())))
    layer = spread_parameters(Layer())
    layer.register_forward_hook(scales)
    save("HookedRoot", torch.jit.script(layer))
    save("OneMemory", torch.jit.script(OneMemory()))
    save("FrozenRoot", frozen())
