"""The paper itself, *ENTP: Encoder-only Next Token Prediction*, section by section."""

from entp_lib.papers.entp.addition.experiment import ADDITION, ADDITION_TO_999
from entp_lib.papers.entp.addition.lengths import LENGTHS
from entp_lib.papers.entp.complexity.experiment import COMPLEXITY
from entp_lib.papers.entp.count3 import COUNT3, COUNT3_UNSEEN
from entp_lib.papers.entp.count3_long import COUNT3_LONG_ALL
from entp_lib.papers.entp.count3_sets import COUNT3_REPEATS, COUNT3_SETS, COUNT3_UNSEEN_SETS
from entp_lib.papers.entp.deciding import DECIDING
from entp_lib.papers.entp.downstream.experiment import DOWNSTREAM, PRONOUNS
from entp_lib.papers.entp.equal_operations import OPERATIONS
from entp_lib.papers.entp.expressivity.experiment import EXPRESSIVITY
from entp_lib.papers.entp.full_layers import FULL_LAYER_RUNS
from entp_lib.papers.entp.gates import ADDITION_FOUR_DIGITS, COUNT3_LONG, COUNT3_LONG_PAIRS
from entp_lib.papers.entp.in_context.experiment import (
    IN_CONTEXT,
    IN_CONTEXT_BASELINES,
    IN_CONTEXT_SETTINGS,
    IN_CONTEXT_SPARSE,
)
from entp_lib.papers.entp.language.experiment import OPENWEBTEXT
from entp_lib.papers.entp.language.shakespeare import SHAKESPEARE
from entp_lib.papers.entp.logged import AUTHORS_LOG
from entp_lib.papers.entp.match3 import MATCH3
from entp_lib.papers.entp.pairless import COUNT3_BOUNDS
from entp_lib.papers.entp.pretrained.encoder_experiment import PRETRAINED_ENCODER
from entp_lib.papers.entp.pretrained.language_experiment import (
    PRETRAINED_LIFTED,
    PRETRAINED_PROMPTS,
    PRETRAINED_PROVIDER,
)
from entp_lib.papers.entp.rasp.chain_of_thought import CHAIN_OF_THOUGHT
from entp_lib.papers.entp.rasp.depth import DEPTH
from entp_lib.papers.entp.rasp.experiment import RASP
from entp_lib.papers.entp.shortcut import COUNT3_PROBE

EXPERIMENTS = (
    EXPRESSIVITY,
    COMPLEXITY,
    COUNT3,
    COUNT3_UNSEEN,
    COUNT3_SETS,
    COUNT3_UNSEEN_SETS,
    COUNT3_LONG,
    COUNT3_LONG_PAIRS,
    COUNT3_LONG_ALL,
    COUNT3_REPEATS,
    COUNT3_BOUNDS,
    COUNT3_PROBE,
    AUTHORS_LOG,
    FULL_LAYER_RUNS,
    PRETRAINED_ENCODER,
    PRETRAINED_PROMPTS,
    PRETRAINED_LIFTED,
    PRETRAINED_PROVIDER,
    MATCH3,
    RASP,
    CHAIN_OF_THOUGHT,
    DEPTH,
    ADDITION,
    ADDITION_TO_999,
    LENGTHS,
    ADDITION_FOUR_DIGITS,
    IN_CONTEXT,
    IN_CONTEXT_SPARSE,
    IN_CONTEXT_SETTINGS,
    IN_CONTEXT_BASELINES,
    OPENWEBTEXT,
    SHAKESPEARE,
    DOWNSTREAM,
    PRONOUNS,
    *OPERATIONS,
    *DECIDING,
)

# In which order the runs of a long tier are made: the cheap ones first, so that most questions are whole early.
NIGHTLY_ORDER = (
    "count3_repeats",
    "count3",
    "match3",
    "openwebtext",
    "addition_lengths",
    "in_context_baselines",
    "count3_unseen",
    "full_layers",
    "addition_four_digits",
    "count3_long",
    "in_context",
    "addition",
    "in_context_sparse",
    "match3_operations",
    "openwebtext_operations",
    "count3_operations",
    "in_context_operations",
    "count3_long_pairs",
    "count3_sets",
    "count3_unseen_sets",
    "count3_long_all",
    "openwebtext_positions",
    "match3_rates",
    "count3_gate",
    "addition_windows",
)
