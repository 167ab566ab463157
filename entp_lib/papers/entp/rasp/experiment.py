"""Count3's programs and constructed weights (Lemma 6.3, Remark 6.4, appendices A.7, E, F), tried and judged."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from entp_lib.collection.claims import Check
from entp_lib.collection.experiment import Experiment
from entp_lib.config import StudyConfig
from entp_lib.papers.entp.rasp import programs
from entp_lib.papers.entp.rasp.checks import TRACED
from entp_lib.papers.entp.rasp.constructed import division_digits
from entp_lib.runs.records import Record

FIGURE_2_SEED = [4, 41, 1, 40, 44, 26, 38, 34, 44, 0, 58, 46]  # the first 12 of the paper's Figure 2

TIERS: dict[str, dict[str, dict]] = {
    "smoke": {
        "programs": dict(sequences=12, longest=14, largest=127),
        "constructed": dict(
            length=8,
            max_value=15,
            pairs=60,
            generations=4,
            seed_length=3,
            lengths=[4, 32],
            pairs_each=20,
            shown=[4, 1, 0, 14, 3, 8],
        ),
    },
    "quick": {
        "programs": dict(sequences=500, longest=20, largest=63),
        "constructed": dict(
            length=64,
            max_value=63,
            pairs=10_000,
            generations=200,
            seed_length=16,
            lengths=[4, 8, 16, 32, 64, 128, 256, 384, 512],
            pairs_each=100,
            shown=FIGURE_2_SEED,
        ),
    },
}


def configs(tier: str, seeds: int = 0) -> list[StudyConfig]:
    """Both studies; ``seeds`` changes nothing, since nothing is trained."""
    return [StudyConfig("rasp", tier, study, params) for study, params in TIERS.get(tier, {}).items()]


def of_study(records: Sequence[Record], study: str) -> Record | None:
    """The record of one of the two studies."""
    return next((r for r in records if r.config.study == study), None)


def program_table(record: Record) -> pd.DataFrame:
    """Share of right answers by program."""
    return pd.DataFrame({"tried": record.metrics["tried"], "right": record.metrics["right"]})


def shape_table(record: Record) -> pd.Series:
    """The constructed model beside Lemma 6.3: its shape, and what went wrong."""
    m, p = record.metrics, record.config.params
    return pd.Series(
        {
            "longest sequence": p["length"],
            "largest value": p["max_value"],
            "layers": m["layers"],
            "heads": m["heads"],
            "width": m["width"],
            "largest weight": f"{m['largest_weight']:g}",
            "random prefixes, wrong": f"{m['random']['wrong']} of {m['random']['asked']}",
            "hard prefixes, wrong": f"{m['hard']['wrong']} of {m['hard']['asked']}",
            "smallest margin of a logit": f"{min(m['random']['margin'], m['hard']['margin']):.6f}",
            "sequences generated, wrong": f"{m['generated']['wrong']} of {m['generated']['sequences']}",
            "under a causal mask, wrong": f"{m['causal']['wrong']} of {m['causal']['asked']}",
        },
        name="constructed Count3",
    )


def numbers_table(record: Record, masked: bool = False) -> pd.DataFrame:
    """The named numbers of every token of the shown sequence, in the order of the program; under a mask or not."""
    trace = record.metrics["trace"]
    table = pd.DataFrame(trace["numbers_masked" if masked else "numbers"], index=pd.Index(trace["tokens"], name="x"))
    return table[list(TRACED)].round(6).abs()


def precision_table(record: Record) -> pd.DataFrame:
    """Long: one row per length and precision, with the share of wrong answers on random and on hard prefixes."""
    table = pd.DataFrame(record.curves)
    table["random, wrong"] = table["wrong"] / table["asked"]
    table["hard, wrong"] = table["hard_wrong"] / table["hard_asked"]
    return table


def blocks_are_right_in_less() -> bool:
    """Whether √n counters compute Count3 in at most 2 n^1.5 + 2n steps: less than Conjecture 6.1 allows."""
    generator = np.random.default_rng(0)
    for n in (16, 64, 256):
        x = generator.integers(0, 64, n).tolist()
        answer, steps = programs.count3_blocks(x, math.isqrt(n))
        if answer != programs.count3_table(x) or steps > 2 * n**1.5 + 2 * n:
            return False
    return True


def measure(records: Sequence[Record]) -> list[Check]:
    """Programs are verified if they were right on everything tried; what the paper leaves out is a correction."""
    tried, constructed = of_study(records, "programs"), of_study(records, "constructed")
    if tried is None or constructed is None:
        return []
    tier, right, m = tried.config.tier, tried.metrics["right"], constructed.metrics
    ids, built = (f"rasp/{tried.id}",), (f"rasp/{constructed.id}",)
    shares = pd.Series(right)
    exact = shares == 1.0
    mod = tried.metrics["mod_wrong"]
    wrong = m["random"]["wrong"] + m["hard"]["wrong"] + m["generated"]["wrong"]
    by_length = precision_table(constructed)
    fp64 = by_length[by_length["precision"] == "fp64"]
    layers = {n: 9 + 2 * division_digits(n) for n in fp64["length"]}
    holds = wrong == 0 and fp64[["wrong", "hard_wrong"]].eq(0).all(axis=None)
    return [
        Check("6.1", not blocks_are_right_in_less(), tier, records=ids),
        Check("6.2", None, tier, records=ids),
        Check(
            "6.3",
            bool(holds and fp64["layers"].nunique() == 1),
            tier,
            bool(holds and all(row.layers == layers[row.length] for row in fp64.itertuples())),
            "constant heads and width; 9 layers and two for every base-4 digit of the vocabulary, to take values mod n",
            built,
        ),
        Check("6.4", bool(exact["algorithm 6"] and exact["algorithm 6 in 2n + 2 steps"]), tier, records=ids),
        Check(
            "A.7",
            mod["M = 2n, ε = 0.1"] == mod["M = 2n, ε = 0.5"] == 0,
            tier,
            mod["M = n/ε, ε = 0.1"] == mod["M = n/ε, ε = 0.5"] == 0,
            "M ≥ n/ε: 2n is too small for ε < 1/2",
            ids,
        ),
        Check("E-2", bool(exact["algorithm 2"]), tier, records=ids),
        Check("E-3", bool(exact["algorithm 3"]), tier, records=ids),
        Check(
            "F-4",
            bool(exact["algorithm 4, x < n"] and shares.get("algorithm 4, some x ≥ n", 1.0) == 1.0),
            tier,
            bool(exact["algorithm 4, x < n"] and exact["algorithm 4, x mod n first"]),
            "values of n and more are first taken mod n",
            ids,
        ),
        Check(
            "F-5",
            bool(exact["algorithm 5, every prefix"]),
            tier,
            bool(exact["algorithm 5 with all calls causal, every prefix"]),
            "all three attention calls causal; as printed two of them see the future",
            ids,
        ),
    ]


RASP = Experiment(
    name="rasp",
    version=1,
    title="Programs and constructed weights for Count3",
    notebook="04_rasp",
    configs=configs,
    measure=measure,
    jobs=1,
)
