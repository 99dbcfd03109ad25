"""Exports a Llama of the shape of Maykeye/TinyLLama-v0 (4.6 million parameters) as TorchScript, traced with transformers.

    export.py --out build/tinyllama_v0/model.pt [--layers 8]

The weights are random, from a fixed seed: nothing is downloaded.
"""
import argparse
import pathlib
import warnings

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

SEQUENCE = 128


class LogitsOnly(torch.nn.Module):
    """Tracing wants a module that returns tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, return_dict=False)[0]


def tinyllama_v0(layers):
    torch.manual_seed(0)
    # Eager attention: the fused one decides by the values of the mask while tracing.
    return LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=64, intermediate_size=256, num_hidden_layers=layers,
                                        num_attention_heads=16, max_position_embeddings=2048, rms_norm_eps=1e-6,
                                        tie_word_embeddings=False, use_cache=False, attn_implementation="eager"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")  # what tracing makes constant is checked below
    model = LogitsOnly(tinyllama_v0(args.layers)).eval()
    tokens = lambda batch, length: torch.randint(32000, (batch, length))
    traced = torch.jit.trace(model, tokens(2, SEQUENCE))
    with torch.no_grad():  # neither the batch size nor the length must have been baked in
        for other in (tokens(3, SEQUENCE), tokens(1, SEQUENCE // 2)):
            torch.testing.assert_close(traced(other), model(other))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    traced.save(args.out)
    print(f"{args.out}: {args.layers} layers, {sum(p.numel() for p in traced.parameters()):,} parameters")


if __name__ == "__main__":
    main()
