"""What compact Transformers memorise, and how they abstract and extrapolate (Härmä et al., Electronics 2026)."""

from entp_lib.papers.compact.abstraction import ABSTRACTION
from entp_lib.papers.compact.capacity import CAPACITY
from entp_lib.papers.compact.knowledge import GRAPH, REAL_GRAPH
from entp_lib.papers.compact.lengths import LENGTHS

EXPERIMENTS = (CAPACITY, GRAPH, REAL_GRAPH, ABSTRACTION, LENGTHS)

# What the experiments' records call their studies, and where these are.
STUDIES = {
    "compact_capacity": "entp_lib.papers.compact.memory_studies:capacity_study",
    "compact_largest_library": "entp_lib.papers.compact.memory_studies:largest_library_study",
    "compact_shatter": "entp_lib.papers.compact.memory_studies:shatter_study",
    "compact_triplets": "entp_lib.papers.compact.graph_studies:triplets_study",
    "compact_walks": "entp_lib.papers.compact.graph_studies:walks_study",
    "compact_abstraction": "entp_lib.papers.compact.abstraction_studies:abstraction_study",
    "compact_addition": "entp_lib.papers.compact.length_studies:addition_study",
}
