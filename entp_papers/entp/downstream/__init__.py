"""Transfer of language models to other tasks (§7.3, Table 4)."""
