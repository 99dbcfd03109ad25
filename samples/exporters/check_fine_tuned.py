"""Loads the fine-tuned module in plain Python, without the plugin, and shows that it says what the C++ program said.

    check_fine_tuned.py --folder build/quickstart
"""
import argparse
import json
import pathlib
import textwrap

import torch

SHOWN = 6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    folder = parser.parse_args().folder

    before = dict(torch.jit.load(folder / "minilm.pt").named_parameters())
    module = torch.jit.load(folder / "fine_tuned.pt").eval()
    after = dict(module.named_parameters())
    assert before.keys() == after.keys()
    same = [name for name in before if torch.equal(before[name], after[name])]
    assert not same, f"not trained: {same}"
    print(f"all {len(after)} parameters were trained")

    data = torch.load(folder / "eval.pt")
    with torch.no_grad():
        python = module(data["input_ids"], data["attention_mask"]).argmax(1).tolist()
    cpp = json.loads((folder / "full_shard.jsonl").read_text().splitlines()[-1])["summary"]["predictions"]
    held_out = json.loads((folder / "eval.json").read_text())
    classes = held_out["classes"]
    print("{:<10}{:<10}{:<10}{}".format("C++", "Python", "label", "passage"))
    for i in range(SHOWN):
        passage = textwrap.shorten(held_out["texts"][i], 80)
        print("{:<10}{:<10}{:<10}{}".format(classes[cpp[i]], classes[python[i]], classes[int(data["label"][i])], passage))
    assert python == cpp, "Python and C++ predict different classes"
    right = sum(a == b for a, b in zip(python, data["label"].tolist()))
    print(f"all {len(python)} predictions are the same; {right} are right")


if __name__ == "__main__":
    main()
