"""What next tokens cost (§5, Table 1, appendix D)."""
