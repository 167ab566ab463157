"""FLEQ (§5.2 and later): mem[c] = f_m(mem[a], mem[b]), then a branch, for functions that are Transformer layers."""
