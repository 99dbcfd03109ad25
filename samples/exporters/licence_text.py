"""Real text for the quickstart: passages of the licences every Debian system carries, labelled by licence family.

Licences quote each other. A line that occurs in two families says nothing about either and is dropped; a line that occurs
twice in one family is kept once. So no line of a held-out passage occurs in the training passages.

    licence_text.py --out build/quickstart      writes train.pt, eval.pt and eval.json
"""
import argparse
import json
import pathlib
import random

import torch
from tokenizer import load_tokenizer

FOLDER = pathlib.Path("/usr/share/common-licenses")
FAMILIES = {
    "GPL": ["GPL-1", "GPL-2", "GPL-3"],
    "LGPL": ["LGPL-2", "LGPL-2.1", "LGPL-3"],
    "GFDL": ["GFDL-1.2", "GFDL-1.3"],
    "MPL": ["MPL-1.1", "MPL-2.0"],
    "Apache": ["Apache-2.0"],
    "Artistic": ["Artistic"],
    "CC0": ["CC0-1.0"],
}
LINES = 2  # of a passage
SHORTEST = 24  # shorter lines are headings and remainders
HELD_OUT = 240
TOKENS = 36


def normal(line):
    return " ".join(line.lower().split())


def unique_lines():
    """family -> file -> its lines that no other family has, each once in the family."""
    files = {family: {name: (FOLDER / name).read_text().splitlines() for name in names} for family, names in FAMILIES.items()}
    families_of = {}
    for family, texts in files.items():
        for lines in texts.values():
            for line in lines:
                families_of.setdefault(normal(line), set()).add(family)
    result = {}
    for family, texts in files.items():
        seen = set()
        for name, lines in texts.items():
            kept = []
            for line in lines:
                key = normal(line)
                if len(key) >= SHORTEST and len(families_of[key]) == 1 and key not in seen:
                    seen.add(key)
                    kept.append(" ".join(line.split()))
            result.setdefault(family, {})[name] = kept
    return result


def passages():
    found = []
    for label, texts in enumerate(unique_lines().values()):
        for lines in texts.values():
            found += [(label, lines[i : i + LINES]) for i in range(0, len(lines) - LINES + 1, LINES)]
    return found


def split(found, seed):
    random.Random(seed).shuffle(found)
    held_out, training = found[:HELD_OUT], found[HELD_OUT:]
    trained = {normal(line) for _, lines in training for line in lines}
    assert len(held_out) >= 200 and len({label for label, _ in held_out}) >= 5
    assert not any(normal(line) in trained for _, lines in held_out for line in lines), "a held-out line occurs in training"
    return training, held_out


def tensors(tokenizer, rows):
    encoded = tokenizer([" ".join(lines) for _, lines in rows], padding="max_length", truncation=True, max_length=TOKENS,
                        return_tensors="pt")
    return {
        "input_ids": encoded["input_ids"],
        "attention_mask": encoded["attention_mask"],
        "label": torch.tensor([label for label, _ in rows]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    training, held_out = split(passages(), args.seed)
    tokenizer = load_tokenizer()
    torch.save(tensors(tokenizer, training), args.out / "train.pt")
    torch.save(tensors(tokenizer, held_out), args.out / "eval.pt")
    families = list(FAMILIES)
    (args.out / "eval.json").write_text(json.dumps({
        "classes": families,
        "texts": [" ".join(lines) for _, lines in held_out],
    }))
    count = lambda rows: ", ".join(f"{name} {sum(label == i for label, _ in rows)}" for i, name in enumerate(families))
    print(f"training: {len(training)} passages ({count(training)})")
    print(f"held out: {len(held_out)} passages ({count(held_out)}); no line of them occurs in training")


if __name__ == "__main__":
    main()
