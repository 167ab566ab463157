"""Memorisation, abstraction and extrapolation of compact Transformers (Härmä et al., Electronics
2026).
"""

# Experiments by the name that records carry; values are "module:attribute", from this folder.
EXPERIMENTS = {
    "compact_capacity": "capacity:CAPACITY",
    "compact_capacity_trainings": "capacity:CAPACITY_TRAININGS",
    "compact_graph": "knowledge:GRAPH",
    "compact_real_graph": "knowledge:REAL_GRAPH",
    "compact_activations": "knowledge:ACTIVATION_RUNS",
    "compact_walk_activations": "knowledge:WALK_ACTIVATIONS",
    "compact_abstraction": "abstraction:ABSTRACTION",
    "compact_last_token": "abstraction:LAST_TOKEN",
    "compact_lengths": "lengths:LENGTHS",
    "compact_length_seeds": "lengths:LENGTH_SEEDS",
    "compact_length_rates": "lengths:LENGTH_RATES",
    "compact_length_operations": "lengths:LENGTH_OPERATIONS",
    "compact_one_layer": "lengths:ONE_LAYER_RUNS",
    "compact_algorithms": "lengths:ALGORITHM_RUNS",
    "compact_attention": "abstraction:ATTENTION",
    "compact_statements": "statements:STATEMENTS",
}

# Study functions by name: they take JSON arguments and return (metrics, curves).
STUDIES = {
    "compact_capacity": "memory:capacity_study",
    "compact_largest_library": "memory:largest_library_study",
    "compact_shatter": "memory:shatter_study",
    "compact_triplets": "graph_studies:triplets_study",
    "compact_walks": "graph_studies:walks_study",
    "compact_abstraction": "templates:abstraction_study",
    "compact_last_token": "templates:last_token_study",
    "compact_addition": "addition:addition_study",
    "compact_algorithms": "algorithms:algorithm_study",
    "compact_attention": "templates:attention_study",
    "compact_statements_examples": "statements:examples_study",
    "compact_statements_hopfield": "statements:hopfield_study",
}

# The order in which a long tier runs its experiments: cheap ones first, so that most questions are
# answered early.
NIGHTLY_ORDER = (
    "compact_capacity_trainings",
    "compact_activations",
    "compact_lengths",
    "compact_walk_activations",
    "compact_abstraction",
    "compact_length_seeds",
    "compact_last_token",
)
