"""What language models carry over (§7.3, Table 4)."""
