"""What is made of all papers together: the ledger, the README, the notebooks run."""
