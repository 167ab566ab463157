"""What compact Transformers memorise, and how they abstract and extrapolate (Härmä et al., Electronics 2026)."""
