"""Experiments of a night each that begin with a gate, runs on a seed that no comparison uses, and
what followed.

Count3 at length 24, and addition trained to four digits. Whether five pairs follow, and by which
numbers, was written down before the first of these runs (docs/journal); what the gate gives is the
result if it stays shut. That of addition did. That of length 24, where ENTP learns from a few
random prefixes of each of many sequences, opened, so that its five pairs are here too: with
few prefixes, and with ENTP as it is defined, which learns from all of them on fewer steps (6.6
times a decoder's multiply-adds) and is compared with the decoder of the same steps and with that of
the pairs, which has more steps and still half of ENTP's multiply-adds.
"""

from entp_lab.budgets import MORE_STEPS, SAME_PREFIXES
from entp_lab.experiment import Closed, Experiment, no_claims
from entp_papers.entp.count3 import lead_claims

# of token accuracy, mean of the last ``LAST`` evaluations: either arm must have it
ABOVE_MODE = 0.05
LAST = 5
DECODERS = ("decoder", SAME_PREFIXES)  # with which ENTP is compared at length 24


def experiment(name: str, title: str, notebook: str, measure=no_claims) -> Experiment:
    """Make one of these experiments."""
    of = "addition_lengths" if notebook == "07_addition" else "count3"
    return Experiment(name, 1, title, notebook, Closed(name), measure, paper_runs_of=of)


COUNT3_LONG = experiment(
    "count3_long",
    "Count3 at length 24, few prefixes of many sequences: the gate",
    "03b_count3_details",
)
COUNT3_LONG_PAIRS = experiment(
    "count3_long_pairs",
    "Count3 at length 24, few prefixes of many sequences: pairs",
    "03b_count3_details",
)
COUNT3_LONG_ALL = experiment(
    "count3_long_all",
    "Count3 at length 24, all prefixes",
    "03_count3",
    lead_claims({"F2-long-all": "decoder", "F2-long-all-more": MORE_STEPS}),
)
ADDITION_FOUR_DIGITS = experiment(
    "addition_four_digits", "Addition trained to four digits: the gate", "07_addition"
)
