"""Count3's programs and constructed weights (Lemma 6.3, Remark 6.4, appendices A.7, E, F), tried
and judged.
"""

from dataclasses import dataclass, field

from entp_lab.experiment import Experiment, PlannedRuns, planned_study
from entp_lab.parameters import NotebookParameters
from entp_lab.theory import checks_of
from entp_lib.validation import require

LONGEST_OWN, LARGEST_OWN = 32, 255  # sequences of a reader's own
# the first 12 of the paper's Figure 2
FIGURE_2_SEED = [4, 41, 1, 40, 44, 26, 38, 34, 44, 0, 58, 46]

TRIED = dict(
    length=8, max_value=15, pairs=60, generations=4, seed_length=3, lengths=[4, 32], pairs_each=20
)
WHOLE = dict(length=64, max_value=63, pairs=10_000, generations=200, seed_length=16)
LENGTHS = [4, 8, 16, 32, 64, 128, 256, 384, 512]
TIERS = {
    "smoke": {
        "programs": dict(sequences=12, longest=14, largest=127),
        "constructed": dict(**TRIED, shown=[4, 1, 0, 14, 3, 8]),
        "below_length": dict(lengths=[4, 16], pairs_each=10),
        "counters": dict(lengths=[16, 64], largest=63),
        "constructed_decoder": dict(lengths=[4, 9], shaped={"small": 6}, sequences=10),
    },
    "quick": {
        "programs": dict(sequences=500, longest=20, largest=63),
        "constructed": dict(**WHOLE, lengths=LENGTHS, pairs_each=100, shown=FIGURE_2_SEED),
        "below_length": dict(lengths=[n for n in LENGTHS if n != 384], pairs_each=100),
        "counters": dict(lengths=[16, 64, 256, 1024], largest=63),
        "constructed_decoder": dict(
            lengths=[16, 32, 64], shaped={"small": 28, "medium": 64}, sequences=50
        ),
    },
}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan all studies; ``seeds`` changes nothing, since nothing is trained."""
    return [
        planned_study("rasp", tier, study, params) for study, params in TIERS.get(tier, {}).items()
    ]


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 04: ``sequence``, 1 to 32 numbers from 0 to 255, is followed step by
    step.
    """

    sequence: list = field(default_factory=lambda: [3, 1, 4, 1, 5, 9, 2, 6])

    def __post_init__(self):
        super().__post_init__()
        length = len(self.sequence)
        right = f"must be 1 to {LONGEST_OWN} numbers from 0 to {LARGEST_OWN}"
        require(1 <= length <= LONGEST_OWN, f"sequence has {length} numbers: {right}")
        for value in self.sequence:
            fits = type(value) is int and 0 <= value <= LARGEST_OWN
            require(fits, f"sequence: {value!r} is out of range: {right}")


RASP = Experiment(
    "rasp",
    1,
    "Programs and constructed weights for Count3",
    "04_rasp",
    plan,
    checks_of("entp_papers.entp.rasp.claims"),
    jobs=1,
)
