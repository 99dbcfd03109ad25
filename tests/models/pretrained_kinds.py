"""Tiny models of Hugging Face transformers, made from hand-written configurations: nothing is downloaded."""
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY = 257


class LogitsOnly(torch.nn.Module):
    """Tracing wants a module that returns tensors; the model stays a child, so parameter names begin with "model."."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, return_dict=False)[0]


def llama(tied):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            tie_word_embeddings=tied,
            use_cache=False,
        )
    )


def gpt2(tied):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=64,
            n_embd=64,
            n_layer=3,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            tie_word_embeddings=tied,
            use_cache=False,
        )
    )


def bert():
    return BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def traced(model):
    example = torch.arange(2 * 16).reshape(2, 16) % VOCABULARY
    return torch.jit.trace(LogitsOnly(model).train(), example, check_trace=False)


def export(save):
    transformers.logging.set_verbosity_error()
    makers = {
        "hf_llama": lambda: llama(False),
        "hf_llama_tied": lambda: llama(True),
        "hf_gpt2": lambda: gpt2(False),
        "hf_gpt2_tied": lambda: gpt2(True),
        "hf_bert_tied": bert,
    }
    for name, make in makers.items():
        torch.manual_seed(11)
        save(name, traced(make()))
