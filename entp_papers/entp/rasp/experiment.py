"""Count3's programs and constructed weights (Lemma 6.3, Remark 6.4, appendices A.7, E, F), tried
and judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch

from entp_lab.experiment import Experiment
from entp_lab.parameters import NotebookParameters
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.store import Record
from entp_lab.theory import checks_of
from entp_lib.validation import require
from entp_papers.entp.rasp import programs
from entp_papers.entp.rasp.constructed import before_output, constructed_count3, run_by_layer
from entp_papers.entp.rasp.interpreter import traced
from entp_papers.entp.rasp.studies import TRACED

LONGEST_OWN, LARGEST_OWN = 32, 255  # sequences of a reader's own
FIGURE_2_SEED = [
    4,
    41,
    1,
    40,
    44,
    26,
    38,
    34,
    44,
    0,
    58,
    46,
]  # the first 12 of the paper's Figure 2

TRIED = dict(
    length=8, max_value=15, pairs=60, generations=4, seed_length=3, lengths=[4, 32], pairs_each=20
)
WHOLE = dict(length=64, max_value=63, pairs=10_000, generations=200, seed_length=16)
LENGTHS = [4, 8, 16, 32, 64, 128, 256, 384, 512]
TIERS: dict[str, dict[str, dict]] = {
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


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """All studies; ``seeds`` changes nothing, since nothing is trained."""
    return [
        planned_study("rasp", tier, study, params) for study, params in TIERS.get(tier, {}).items()
    ]


def shape_table(record: Record) -> pd.Series:
    """Shape and wrong answers of the constructed model of Lemma 6.3."""
    m, p = record.metrics, record.config.params
    wrong = {
        name: f"{m[name]['wrong']} of {m[name]['asked']}" for name in ("random", "hard", "causal")
    }
    rows = {
        **{"longest sequence": p["length"], "largest value": p["max_value"]},
        **{name: m[name] for name in ("layers", "heads", "width")},
        "largest weight": f"{m['largest_weight']:g}",
        **{f"{name} prefixes, wrong": wrong[name] for name in ("random", "hard")},
        "smallest margin of a logit": f"{min(m['random']['margin'], m['hard']['margin']):.6f}",
        "sequences generated, wrong": f"{m['generated']['wrong']} of {m['generated']['sequences']}",
        "under a causal mask, wrong": wrong["causal"],
    }
    return pd.Series(rows, name="constructed Count3")


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 04: ``sequence``, 1 to 32 numbers from 0 to 255, is followed step by
    step.
    """

    sequence: list = field(default_factory=lambda: [3, 1, 4, 1, 5, 9, 2, 6])

    def __post_init__(self):
        super().__post_init__()
        length, right = (
            len(self.sequence),
            f"must be 1 to {LONGEST_OWN} numbers from 0 to {LARGEST_OWN}",
        )
        require(1 <= length <= LONGEST_OWN, f"sequence has {length} numbers: {right}")
        for value in self.sequence:
            fits = type(value) is int and 0 <= value <= LARGEST_OWN
            require(fits, f"sequence: {value!r} is out of range: {right}")


def step_by_step(x: Sequence[int]) -> pd.DataFrame:
    """Intermediate values of Algorithm 4 on a sequence, and those that the constructed Transformer
    has in its states.

    A column per token; rows are (value, "Algorithm 4" or "Transformer"), whole numbers. An element
    that pairs with all n holds n in the program and 0 in the Transformer, which needs its pairs
    modulo n alone.
    """
    with traced() as steps:
        programs.count3_encoder(x)
    by_name = {step.name: step for step in steps}
    layers = before_output(run_by_layer(constructed_count3(len(x), max(x)), torch.tensor(x)))
    held = {name: read(layers).round().long().tolist() for name, read in TRACED.items()}
    rows = {
        "n": (by_name["n"].attention.sum(1), [last + 1 for last in held["n - 1"]]),
        "last element, mod n": (by_name["last element"].result, held["a_n"]),
        "pairs of each element": (by_name["pairs per element"].attention.sum(1), held["w"]),
        "sum of the pairs": (by_name["sum of pairs"].result, held["n · mean"]),
        "Count3, the sum mod n": (by_name["count mod n"].result, held["answer"]),
    }
    index = pd.MultiIndex.from_product(
        [list(rows), ["Algorithm 4", "Transformer"]], names=["value", "by"]
    )
    return pd.DataFrame(
        [list(row) for pair in rows.values() for row in pair], index, list(map(str, x))
    )


def numbers_table(record: Record, masked: bool = False) -> pd.DataFrame:
    """Return the named numbers of every token of the shown sequence, in the order of the program;
    under a mask or not.
    """
    trace = record.metrics["trace"]
    table = pd.DataFrame(
        trace["numbers_masked" if masked else "numbers"], index=pd.Index(trace["tokens"], name="x")
    )
    return table[list(TRACED)].round(6).abs()


def precision_table(record: Record) -> pd.DataFrame:
    """Long: one row per length and precision, with the share of wrong answers on random and on hard
    prefixes.
    """
    table = pd.DataFrame(record.curves)
    table["random, wrong"] = table["wrong"] / table["asked"]
    table["hard, wrong"] = table["hard_wrong"] / table["hard_asked"]
    return table


def decoder_table(record: Record) -> pd.DataFrame:
    """Compare the constructed decoders and the paper's by size: wrong answers by precision, longest
    length that fits.
    """
    tried, paper = pd.DataFrame(record.curves), pd.DataFrame(record.metrics["paper"]).T
    asked, wrong = tried["asked"] + tried["hard_asked"], tried["wrong"] + tried["hard_wrong"]
    tried["found"] = wrong.astype(str) + " of " + asked.astype(str)
    shape = ["length", "layers", "heads", "width", "parameters"]
    table = tried.pivot(index=["model", *shape], columns="precision", values="found").reset_index(
        shape
    )
    table = pd.concat([table, paper.drop(index=table.index, errors="ignore")]).sort_values(
        "parameters"
    )
    table["longest"] = paper["longest"].reindex(table.index)
    for name, digits in (("length", ".0f"), ("longest", ".0f"), ("parameters", ",.0f")):
        table[name] = [format(value, digits) if value == value else "" for value in table[name]]
    found = {name: f"{name}, wrong" for name in ("fp64", "fp32", "bf16")}
    table = (
        table[[*shape, "longest", *found]]
        .fillna("")
        .rename(columns={"longest": "room for length", **found})
    )
    return table.rename_axis(None)


MEASURE = checks_of("entp_papers.entp.rasp.claims")
RASP = Experiment(
    "rasp", 1, "Programs and constructed weights for Count3", "04_rasp", plan, MEASURE, jobs=1
)
