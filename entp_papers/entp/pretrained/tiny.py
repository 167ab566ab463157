"""Models of a few thousand random weights with a tokenizer of single characters: for smoke runs and tests alone.

They need neither weights nor a network, only ``transformers``, and show that every step works; they know nothing.
"""

import string
from collections.abc import Callable
from typing import Any

WIDTH, END = 32, "<end>"


def bert_config():
    """A BERT of two layers."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(string.printable) + 1,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=64,
    )


def llama_config():
    """A Llama of two layers with tied embeddings."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(string.printable) + 1,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )


def tokenizer():
    """One token for each printable character, and one that ends a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {c: i for i, c in enumerate([END, *string.printable])}
    found = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    found.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    found.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=found, eos_token=END, unk_token=END)


def built(kind: str, config: Callable) -> Callable[[], Any]:
    """A function that makes the model of ``config`` by a class of transformers, always with the same weights."""

    def build():
        import torch
        import transformers

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return getattr(transformers, kind).from_config(config())

    return build


# By name and by what ``from_pretrained`` it stands for.
TINY = {
    "tiny-bert": {"AutoModel": built("AutoModel", bert_config), "AutoConfig": bert_config, "AutoTokenizer": tokenizer},
    "tiny-llama": {
        "AutoModelForCausalLM": built("AutoModelForCausalLM", llama_config),
        "AutoConfig": llama_config,
        "AutoTokenizer": tokenizer,
    },
}
