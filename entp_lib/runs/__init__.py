"""From configurations to records."""
