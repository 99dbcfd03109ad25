"""Writes every model of the tests: export.py OUT_FOLDER. Same weights on every machine and in every run."""
import os
import sys
import warnings

import torch

import calls
import escapes
import language_model
import odd
import other_holders
import precision
import pretrained_kinds
import pretrained_package
import small_nets
from values import spread_parameters


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")

    def save(name, module):
        # Renamed when whole, so that an interrupted run leaves no half file that looks finished.
        module.save(os.path.join(out, name + ".part"))
        os.replace(os.path.join(out, name + ".part"), os.path.join(out, name + ".pt"))

    example = torch.arange(2 * 16).reshape(2, 16) % language_model.VOCABULARY
    for tied in (False, True):
        model = spread_parameters(language_model.LanguageModel(tied))
        suffix = "_tied" if tied else ""
        save("lm" + suffix, torch.jit.script(model))
        save("lm_traced" + suffix, torch.jit.trace(model, example, check_trace=False))
    small_nets.export(save)
    odd.export(save)
    calls.export(save)
    escapes.export(save)
    other_holders.export(save)
    precision.export(save)
    pretrained_kinds.export(save)
    pretrained_package.export(out)
    with open(os.path.join(out, "complete"), "w") as stamp:
        stamp.write(torch.__version__ + "\n")


if __name__ == "__main__":
    main()
