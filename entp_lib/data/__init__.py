"""Text for language modelling: sources, tokenizers, and tokens on disk."""
