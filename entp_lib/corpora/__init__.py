"""Text for language modelling: sources, tokenizers, and tokens on disk."""

from entp_lib.corpora.cache import SPLITS, Recipe, Tokens, open_tokens
from entp_lib.corpora.documentation import embedded_file, export
from entp_lib.corpora.sources import ParquetFiles, TextFile, source_of
from entp_lib.corpora.tokenizers import TOKENIZERS, Tokenizer, characters_of, vocabulary_size

__all__ = [
    "SPLITS",
    "TOKENIZERS",
    "ParquetFiles",
    "Recipe",
    "TextFile",
    "Tokenizer",
    "Tokens",
    "characters_of",
    "embedded_file",
    "export",
    "open_tokens",
    "source_of",
    "vocabulary_size",
]
