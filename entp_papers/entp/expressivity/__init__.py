"""Expressive power of encoders and decoders (§3, §4, appendices A and B)."""
