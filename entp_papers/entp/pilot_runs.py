"""Experiments of a night each that begin with a first test, the gate: Count3 at length 24, and
addition trained to four digits.

The gate's runs have a seed that no comparison uses. The scores that they need for five pairs of
runs to follow were written down before the first run (docs/journal); otherwise the gate's runs are
the result. Addition did not pass. Count3 at length 24, where ENTP learns from a few random prefixes
of each of many sequences, passed, so its five pairs are here too. In one set ENTP learns from few
prefixes. In the other it learns from all prefixes, as it is defined, in fewer steps (6.6 times a
decoder's multiply-adds). There it is compared with the decoder at equal steps, and with the first
set's decoder, which has more steps and still half of ENTP's multiply-adds.
"""

from entp_lab.budgets import MORE_STEPS, SAME_PREFIXES
from entp_lab.experiment import Closed, Experiment, no_claims
from entp_papers.entp.count3 import lead_claims

# Pairs follow if the token accuracy of either arm, a mean over the last ``LAST`` evaluations, is
# this far above that of always the most frequent answer.
ABOVE_MODE = 0.05
LAST = 5
DECODERS = ("decoder", SAME_PREFIXES)  # the decoders that ENTP is compared with at length 24


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
