"""What compact Transformers memorise, and how they abstract and extrapolate (Härmä et al., Electronics 2026)."""

from entp_lib.papers.compact.abstraction import ABSTRACTION
from entp_lib.papers.compact.activations import ACTIVATION_RUNS
from entp_lib.papers.compact.capacity import CAPACITY
from entp_lib.papers.compact.knowledge import GRAPH, REAL_GRAPH
from entp_lib.papers.compact.last_token import LAST_TOKEN
from entp_lib.papers.compact.length_seeds import LENGTH_SEEDS
from entp_lib.papers.compact.lengths import LENGTHS
from entp_lib.papers.compact.walk_activations import WALK_ACTIVATIONS

EXPERIMENTS = (
    CAPACITY,
    GRAPH,
    REAL_GRAPH,
    ACTIVATION_RUNS,
    WALK_ACTIVATIONS,
    ABSTRACTION,
    LAST_TOKEN,
    LENGTHS,
    LENGTH_SEEDS,
)
# by their designs 0.7, 3.1, 0.8, 4.5, 5.1 and 0.5 core-hours
NIGHTLY_ORDER = (
    "compact_activations",
    "compact_lengths",
    "compact_walk_activations",
    "compact_abstraction",
    "compact_length_seeds",
    "compact_last_token",
)
