"""The laboratory: from configurations to records, data frames, figures, verdicts and notebooks."""
