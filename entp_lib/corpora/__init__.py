"""Text for language modelling: sources, tokenizers, and tokens on disk."""

from entp_lib.corpora.cache import Recipe, Tokens, open_tokens
from entp_lib.corpora.documentation import embedded_file
from entp_lib.corpora.sources import TextFile, check_checksum, source_of
from entp_lib.corpora.tokenizers import TOKENIZERS, Tokenizer, characters_of, vocabulary_size

__all__ = [
    "TOKENIZERS",
    "Recipe",
    "TextFile",
    "Tokenizer",
    "Tokens",
    "characters_of",
    "check_checksum",
    "embedded_file",
    "open_tokens",
    "source_of",
    "vocabulary_size",
]
