"""Addition (§7.1, appendix C.3)."""
