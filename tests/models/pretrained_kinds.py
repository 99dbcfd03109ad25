"""Tiny models of Hugging Face transformers, made from hand-written configurations: nothing is downloaded."""
import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

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


class Sequences(LogitsOnly):
    """An encoder reads, a decoder writes, both over one table of words."""

    def forward(self, ids, written):
        return self.model(input_ids=ids, decoder_input_ids=written, return_dict=False)[0]


def t5():
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


def vit():
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            image_size=16,
            patch_size=4,
            num_labels=5,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def traced(wrapped, *examples):
    return torch.jit.trace(wrapped.train(), examples, check_trace=False)


def export(save):
    transformers.logging.set_verbosity_error()
    makers = {
        "hf_llama": lambda: llama(False),
        "hf_llama_tied": lambda: llama(True),
        "hf_gpt2": lambda: gpt2(False),
        "hf_gpt2_tied": lambda: gpt2(True),
        "hf_bert_tied": bert,
    }
    ids = torch.arange(2 * 16).reshape(2, 16) % VOCABULARY
    for name, make in makers.items():
        torch.manual_seed(11)
        save(name, traced(LogitsOnly(make()), ids))
    torch.manual_seed(11)
    save("hf_t5", traced(Sequences(t5()), ids, ids))
    save("hf_vit", traced(LogitsOnly(vit()), torch.ones(2, 3, 16, 16)))
