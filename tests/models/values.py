"""Numbers that C++ and Python can both make: integer arithmetic only, no random generator."""
import torch


def fill(shape, s):
    """Element k, row-major: (((7k + s) mod 13) - 6) * 0.05, as tests/ranks/harness/data.hpp has it."""
    count = int(torch.Size(shape).numel())
    k = torch.arange(count, dtype=torch.int64)
    return (((7 * k + s) % 13 - 6).double() * 0.05).float().reshape(shape)


def fill_parameters(module, first=1):
    """fill(shape, first), fill(shape, first + 1), ... over the parameters in order; each tied one once."""
    with torch.no_grad():
        for s, parameter in enumerate(module.parameters(), start=first):
            parameter.copy_(fill(parameter.shape, s))
    return module


def spread_parameters(module):
    """Weights without the short period of fill(): matrices get about unit gain, vectors lie near 1 or 0."""
    with torch.no_grad():
        for s, (name, parameter) in enumerate(module.named_parameters(), start=1):
            k = torch.arange(parameter.numel(), dtype=torch.int64)
            value = ((31 * k * k + 7919 * k + 104729 * s) % 10007).double() / 10007 - 0.5
            if parameter.dim() > 1:
                value = value * (3.4 / parameter.size(-1) ** 0.5)
            elif name.endswith("bias"):
                value = value * 0.1
            else:
                value = 1 + value * 0.1
            parameter.copy_(value.reshape(parameter.shape))
    return module


def token_ids(step, rank, batch, length, vocabulary):
    """Token ids of one rank's batch in one step; tests/ranks/harness/data.hpp makes the same."""
    i = torch.arange(batch * length, dtype=torch.int64)
    start = 1009 * step + 523 * rank
    return ((17 * i * i + 31 * i + start * (i + 3)) % vocabulary).reshape(batch, length)
