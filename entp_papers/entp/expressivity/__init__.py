"""What encoders and decoders can express (§3, §4, appendices A and B)."""
