"""Reports over all papers: the ledger, README and generated pages, the notebooks, the site, and the commands."""
