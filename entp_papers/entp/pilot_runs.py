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
from entp_papers.entp.closed import closed
from entp_papers.entp.count3 import lead_claims

# Pairs follow if the token accuracy of either arm, a mean over the last ``LAST`` evaluations, is
# this far above that of always the most frequent answer.
ABOVE_MODE = 0.05
LAST = 5
DECODERS = ("decoder", SAME_PREFIXES)  # the decoders that ENTP is compared with at length 24


COUNT3_LONG = closed(
    "count3_long",
    "Count3 at length 24, few prefixes of many sequences: the gate",
    "03b_count3_details",
    paper_runs_of="count3",
)
COUNT3_LONG_PAIRS = closed(
    "count3_long_pairs",
    "Count3 at length 24, few prefixes of many sequences: pairs",
    "03b_count3_details",
    paper_runs_of="count3",
)
COUNT3_LONG_ALL = closed(
    "count3_long_all",
    "Count3 at length 24, all prefixes",
    "03_count3",
    lead_claims({"F2-long-all": "decoder", "F2-long-all-more": MORE_STEPS}),
    paper_runs_of="count3",
)
ADDITION_FOUR_DIGITS = closed(
    "addition_four_digits",
    "Addition trained to four digits: the gate",
    "07_addition",
    paper_runs_of="addition_lengths",
)
