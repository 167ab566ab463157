"""Costs of next tokens (§5, Table 1, appendix D)."""
