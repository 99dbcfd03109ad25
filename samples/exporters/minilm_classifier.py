"""Exports pretrained MiniLM behind a fresh classification head as TorchScript, traced with transformers.

    minilm_classifier.py --data build/quickstart/train.pt --classes 7 --out build/quickstart/minilm.pt
"""
import argparse
import warnings

import torch
import transformers
from tokenizer import model_folder
from transformers import BertModel


class Classifier(torch.nn.Module):
    """The mean of the token states, as MiniLM was trained for sentences, and one linear layer."""

    def __init__(self, classes):
        super().__init__()
        # Eager attention: the fused one decides by the values of the mask while tracing.
        self.encoder = BertModel.from_pretrained(model_folder(), add_pooling_layer=False, attn_implementation="eager")
        self.head = torch.nn.Linear(self.encoder.config.hidden_size, classes)

    def forward(self, input_ids, attention_mask):
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        return self.head((states * weights).sum(1) / weights.sum(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a data file whose first rows are the example inputs")
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    transformers.logging.set_verbosity_error()  # the pooler is left out on purpose
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # what tracing makes constant is checked below
    torch.manual_seed(0)
    model = Classifier(args.classes).eval()  # traced without dropout: runs can be compared number by number
    data = torch.load(args.data)
    rows = lambda n: (data["input_ids"][:n], data["attention_mask"][:n])
    traced = torch.jit.trace(model, rows(4))
    with torch.no_grad():  # the batch size must not have been baked in
        torch.testing.assert_close(traced(*rows(7)), model(*rows(7)))
    assert all(parameter.requires_grad for parameter in traced.parameters())
    traced.save(args.out)
    print(f"{args.out}: {sum(p.numel() for p in traced.parameters()):,} parameters, all trainable")


if __name__ == "__main__":
    main()
