"""In-context learning (§7.2, appendix C.2)."""
