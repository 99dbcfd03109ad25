"""Small nets, each after a fault that people met in public projects; the test of the same name has the numbers."""
import torch
from torch import nn

from values import fill, fill_parameters


class Net3(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class TiedPair(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Linear(4, 4)
        self.m = nn.Linear(4, 4)
        self.m.weight = self.n.weight
        self.m.bias = self.n.bias

    def forward(self, x):
        return self.m(self.n(x))


class TiedTable(nn.Module):
    """Nine rows: uneven on two ranks and on four."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.linear = nn.Linear(4, 9, bias=False)
        self.linear.weight = self.embedding.weight

    def forward(self, ids):
        return self.linear(self.embedding(ids))


class Squeezing(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.down = nn.Linear(4, 4)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x))).squeeze(0)


class Reshaping(Squeezing):
    def forward(self, x):
        return self.down(torch.tanh(self.up(x))).reshape(3, 4)


class Plain(Squeezing):
    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class AddsInPlace(nn.Module):
    def __init__(self, inner: nn.Module, squeezed: bool):
        super().__init__()
        self.inner = inner
        self.head = nn.Linear(4, 2)
        self.squeezed = squeezed

    def forward(self, x):
        h = self.inner(x)
        h += x.squeeze(0) if self.squeezed else x
        return self.head(h)


class AddsOutOfPlace(AddsInPlace):
    def forward(self, x):
        h = self.inner(x)
        h = h + (x.squeeze(0) if self.squeezed else x)
        return self.head(h)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.down = nn.Linear(4, 4)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.p * x


def ones():
    """Weights of one: a loss that sums the outputs has the input as the gradient of each row."""
    linear = nn.Linear(4, 4, bias=False)
    nn.init.ones_(linear.weight)
    return linear


class LateComer(nn.Module):
    """`b` takes part only when it is asked for."""

    def __init__(self):
        super().__init__()
        self.a = ones()
        self.b = ones()

    def forward(self, x, both: bool):
        y = self.a(x).sum()
        return y + self.b(x).sum() if both else y


def export(save):
    net3 = fill_parameters(Net3())
    save("net3", torch.jit.script(net3))
    save("net3_traced", torch.jit.trace(net3, torch.ones(2, 4)))
    save("tied_pair", torch.jit.script(fill_parameters(TiedPair())))
    table = TiedTable()
    with torch.no_grad():
        table.embedding.weight.copy_(fill((9, 4), 3))
    save("tied_table", torch.jit.script(table))
    views = {
        "view_squeeze": AddsInPlace(Squeezing(), True),
        "view_plain": AddsInPlace(Plain(), False),
        "view_reshape": AddsInPlace(Reshaping(), True),
        "view_squeeze_out_of_place": AddsOutOfPlace(Squeezing(), True),
        "view_plain_out_of_place": AddsOutOfPlace(Plain(), False),
    }
    for name, module in views.items():
        save(name, torch.jit.script(fill_parameters(module)))
    save("view_squeeze_traced", torch.jit.trace(fill_parameters(AddsInPlace(Squeezing(), True)), torch.ones(1, 3, 4)))
    save("two_layers", torch.jit.script(fill_parameters(TwoLayers())))
    save("scale", torch.jit.script(Scale()))
    save("ones", torch.jit.script(ones()))
    save("late_comer", torch.jit.script(LateComer()))
