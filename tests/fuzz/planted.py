"""Shows that the fuzz finds faults: those of plugin/engine/planted_fault.hpp, each within 50 seeds.

    python tests/fuzz/planted.py --plugin LIBRARY --runner PROGRAM      (a library with FSDP2_PLANTED_FAULTS)
"""
import argparse
import glob
import os
import sys
import tempfile

import sides
from compare import fault_of
from draw import draw

FAULTS = ["no division", "tied gradient dropped", "stale kept unit", "no-sync gradient lost", "wrong dtype of sums"]
SEEDS = 50
AT_A_TIME = 10


def first_found(name, cases, folders, args):
    """The first seed that finds the fault of this name, with what it says."""
    environment = {"FSDP2_PLANTED_FAULT": name}
    for begin in range(0, len(cases), AT_A_TIME):
        some = slice(begin, begin + AT_A_TIME)
        sides.run_library(cases[some], folders[some], args.plugin, args.runner, environment)
        faults = [fault_of(case, folder) for case, folder in zip(cases[some], folders[some])]
        for folder in folders[some]:
            for file in glob.glob(os.path.join(folder, "library_*")):
                os.remove(file)
        for case, fault in zip(cases[some], faults):
            if fault:
                return case["seed"], fault
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--runner", required=True)
    args = parser.parse_args()
    cases = [draw(seed) for seed in range(SEEDS)]
    failed = False
    with tempfile.TemporaryDirectory(prefix="fsdp2_fuzz_") as root:
        folders = sides.make_folders(root, cases)
        sides.run_pytorch(cases, folders)
        for name in ["", *FAULTS]:
            found = first_found(name, cases, folders, args)
            failed |= (found is None) if name else (found is not None)
            said = "not found" if found is None else f"seed {found[0]}: " + found[1].splitlines()[0]
            print(f"{name or 'without a fault':22}  {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
