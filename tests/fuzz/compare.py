"""Compares what both sides gave, and how exactly they must agree."""
import torch

from facts import PRECISION, is_mixed
from sides import result


def close(given, wanted, eps, what, size=0.0):
    """By torch.testing's own tolerances where `eps` is that of float32: rtol 1.3e-6, atol 1e-5, as PyTorch's tests of
    fully_shard do. Else within `eps` of the greatest element, or of `size`."""
    greatest = max(size, wanted.abs().max().item() if wanted.numel() else 0.0)
    tolerances = {} if eps == torch.finfo(torch.float32).eps else {"rtol": 0.0, "atol": eps * greatest + 1e-5}
    torch.testing.assert_close(given, wanted, **tolerances, msg=lambda message: f"{what}: {message}")


def eps_of(*dtypes):
    """The coarsest's."""
    return max(torch.finfo(getattr(torch, dtype or "float32")).eps for dtype in dtypes)


def compare(case, folder):
    """In low precision both sides compute the same bits before the first sum over ranks or passes: same operators, same
    weights. That sum PyTorch rounds at each addition, the library once: 4 roundings of its dtype, of the size of its terms.
    From the first step on weights differ, and what follows from them: 8 roundings of the coarsest dtype.
    """
    after_sum = eps_of(case["reduce"] or case["param"])
    later = eps_of(*(case[name] for name in PRECISION))
    if is_mixed(case):
        after_sum, later = (eps * (factor if eps > eps_of("float32") else 1) for eps, factor in ((after_sum, 4), (later, 8)))
    for rank in range(case["world"]):
        wanted, given = result("pytorch", rank, folder), result("library", rank, folder)
        for what in ("losses", "norms"):
            close(given[what], wanted[what], later, f"{what} of rank {rank}")
        for what, eps in (("first gradients", after_sum), ("gradients", later), ("parameters", later)):
            if set(given[what]) != set(wanted[what]):
                raise AssertionError(f"{what}: the library has {sorted(given[what])}, PyTorch {sorted(wanted[what])}")
            for name in wanted[what]:
                size = 0.0 if what == "parameters" else wanted["terms"].get(name, 0.0)
                close(given[what][name], wanted[what][name], eps, f"{what} {name}", size)


def fault_of(case, folder):
    """"" where there is none."""
    try:
        compare(case, folder)
        return ""
    except Exception as error:
        return str(error)
