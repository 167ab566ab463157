"""Language modelling (§7.3)."""
