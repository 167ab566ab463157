"""How many layers must see the whole prefix? Count3 with the last 0, 2, 3 or all 4 layers full.

The question is ours: the paper has all layers full (ENTP) or none (decoder). Results are shown at
equal steps. Runs at a second budget, with as many tokens through the layers as ENTP, are stored but
not shown.
"""

from entp_lab.measurements import Comparisons, Paired
from entp_papers.entp.closed import closed
from entp_papers.entp.pairless import no_pairs_found

FULL_LAYERS = (0, 2, 3, 4)  # of 4; a single full layer, of which only the end is read, is causal
SAME_STEPS = "equal steps"
MEASURE = Comparisons(
    [
        Paired(claim, "token_accuracy", arm, "0 full", dict(budget=SAME_STEPS))
        for claim, arm in (("L-4-0", "4 full"), ("L-2-0", "2 full"))
    ],
    excluded=no_pairs_found,
)
FULL_LAYER_RUNS = closed(
    "full_layers",
    "How many full layers Count3 takes",
    "03b_count3_details",
    MEASURE,
    paper_runs_of="count3",
)
