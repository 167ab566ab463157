"""The paper's statements as things that run: counts, constructions and checks."""
