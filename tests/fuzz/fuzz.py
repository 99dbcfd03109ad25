"""Random small models, trained by PyTorch in Python and by the library in C++, and compared.

    python tests/fuzz/fuzz.py --plugin LIBRARY --runner PROGRAM [--count N] [--first SEED] [--shrink]
"""
import argparse
import collections
import json
import sys
import tempfile
import time

import sides
from compare import fault_of
from draw import draw
from features import every_feature, features, least
from simpler import smallest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest case behind the first fault")
    args = parser.parse_args()

    def faults_of(cases):
        with tempfile.TemporaryDirectory(prefix="fsdp2_fuzz_") as root:
            folders = sides.make_folders(root, cases)
            sides.run_pytorch(cases, folders)
            sides.run_library(cases, folders, args.plugin, args.runner)
            return [fault_of(case, folder) for case, folder in zip(cases, folders)]

    began = time.monotonic()
    cases = [draw(seed) for seed in range(args.first, args.first + args.count)]
    faults = faults_of(cases)

    counts = collections.Counter(feature for case in cases for feature in features(case))
    for name in every_feature():
        print(f"{counts[name]:5}  {name}")
    failed = [(case, fault) for case, fault in zip(cases, faults) if fault]
    for case, fault in failed:
        print(f"\nseed {case['seed']}: {json.dumps(case)}\n{fault}")
    print(f"{len(cases) - len(failed)} of {len(cases)} seeds pass, {time.monotonic() - began:.0f} s")
    if failed and args.shrink:
        case, fault = smallest(*failed[0], faults_of)
        print(f"\nthe smallest that fails: {json.dumps(case)}\n{fault}")
    # A run of this size must have met everything; a smaller one may miss some.
    rare = [name for name in every_feature() if counts[name] < least(name)] if args.count >= 300 else []
    if rare:
        print(f"drawn too seldom: {', '.join(rare)}")
    return 1 if failed or rare else 0


if __name__ == "__main__":
    sys.exit(main())
