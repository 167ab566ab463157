"""Costs of next tokens (§5, Table 1, appendix D): measured by length for several shapes, and
judged.
"""

import math

import numpy as np
import pandas as pd

from entp_lab.experiment import Experiment, PlannedRuns, planned_study
from entp_lab.measurements import Findings, checked
from entp_lab.statistics import reaches
from entp_lab.store import Record, Records
from entp_lab.studies import exponent, long
from entp_lib import costs as complexity
from entp_lib.config import SIZES, ModelConfig
from entp_papers.entp.complexity.measurements import VOCABULARY, printed_error

BYTES = 4  # of an fp32 entry
# The most transient entries, as a multiple of n D, for which "O(n D)" is a fair summary: residual
# stream, normed input, queries, keys and values, hidden layer before and after its GELU.
MOST_PER_TOKEN = 20

OCTAVES = [2**k for k in range(4, 13)]
HALVES = sorted([*OCTAVES, *(3 * 2**k for k in range(3, 11))])
SHORT = [128, 256]


# Parameters of the study of one shape; TIERS has their values by tier.
PARAMETERS = (
    "n_layers",
    "n_heads",
    "width",
    "lengths",
    "sequence_lengths",
    "rounds",
    "sequence_rounds",
)
TIERS = {
    "smoke": [
        (2, 1, 8, [8, 16, 32, 64], [8, 16], 1, 1),
        (2, 1, 32, [8, 16], [8], 1, 1),
        (3, 1, 8, [8, 16], [8], 1, 1),
    ],
    "quick": [
        # attention outweighs the linear maps from n = 96 on
        (2, 1, 16, HALVES, [32, 64, 128, 256, 512, 1024], 9, 2),
        (*SIZES["small"].values(), OCTAVES[:-1], [16, 32, 64, 128, 256], 9, 2),
        (*SIZES["medium"].values(), OCTAVES[:-1], [16, 32, 64, 128], 5, 2),
        *((2, d // 16, d, SHORT, [64], 5, 5) for d in (32, 64, 128, 256, 512)),
        *((n, 4, 64, SHORT, [64], 5, 5) for n in (1, 3, 4, 6, 8)),
    ],
}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan one study per shape; ``seeds`` is ignored, because costs do not depend on weights."""
    for values in TIERS.get(tier, []):
        params = dict(zip(PARAMETERS, values, strict=True))
        shape = "{n_layers}/{n_heads}/{width}".format(**params)
        yield planned_study("complexity", tier, "costs", params, shape=shape)


def shape_of(record: Record) -> ModelConfig:
    """Return the model whose costs a record holds."""
    p = record.config.params
    longest = max(*p["lengths"], *p["sequence_lengths"])
    return ModelConfig("entp", p["n_layers"], p["n_heads"], p["width"], VOCABULARY, longest)


# By column of ``per_token``: its row of Table 1, and the exponents of n, D and L printed there.
TABLE_1 = {
    "encoder_operations": ("encoder, operations", (2, 1, 1)),
    "decoder_operations": ("decoder, operations", (1, 1, 1)),
    "decoder_persistent": ("decoder, persistent bytes", (1, 1, 1)),
    "encoder_transient": ("encoder, transient bytes", (1, 1, 0)),
    "decoder_transient": ("decoder, transient bytes", (0, 1, 0)),
}


def per_token(records: Records) -> pd.DataFrame:
    """Return a row per shape and length: the costs of the next token after ``length`` tokens."""
    found = long(records, ("length", *TABLE_1))
    shapes = found["shape"].str.split("/", expand=True).astype(int)
    return found.assign(L=shapes[0], D=shapes[2])


def formulas_hold(records: Records) -> pd.DataFrame:
    """Count for each quantity at how many points it equals the formula of ``entp_lib.costs``."""
    rows = {}
    for name, length, formula in (
        ("encoder_operations", "length", complexity.encoder_token),
        ("decoder_operations", "length", complexity.decoder_token),
        ("decoder_pass_operations", "sequence_length", complexity.decoder_pass),
        ("decoder_persistent", "length", lambda cfg, n: BYTES * 2 * n * cfg.width * cfg.n_layers),
    ):
        equal = [
            value == formula(shape_of(r), n)
            for r in records
            for n, value in zip(r.curves[length], r.curves[name], strict=True)
        ]
        rows[name] = {"points": len(equal), "equal": sum(equal)}
    return pd.DataFrame.from_dict(rows, orient="index")


def table_1(records: Records) -> pd.DataFrame:
    """Return the exponents in n, D and L of each cost, as printed in Table 1 and as found.

    Operations and persistent memory are counted; transient memory is measured from tensors. The
    exponent in n is that of the narrowest shape at its longest lengths, those in D and L are taken
    at the shortest common length.
    """
    tokens = per_token(records)
    narrow = tokens[tokens["D"] == tokens["D"].min()]
    narrow = narrow[narrow["L"] == narrow["L"].min()]
    longest = narrow[narrow["length"] >= narrow["length"].max() / 2]
    n = min(set.intersection(*(set(part["length"]) for _, part in tokens.groupby("shape"))))
    at_n = tokens[tokens["length"] == n]
    same_depth = at_n.groupby("L")["D"].nunique().idxmax()
    same_width = at_n.groupby("D")["L"].nunique().idxmax()

    def found(table: pd.DataFrame, by: str, column: str) -> float:
        means = table.groupby(by)[column].mean()
        return exponent(means.index, means.to_numpy())

    rows = {}
    for column, (what, printed) in TABLE_1.items():
        rows[what] = {
            **{f"{letter}, Table 1": p for letter, p in zip("nDL", printed, strict=True)},
            "n, found": found(longest, "length", column),
            "D, found": found(at_n[at_n["L"] == same_depth], "D", column),
            "L, found": found(at_n[at_n["D"] == same_width], "L", column),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


MOST_VECTORS = 5  # vectors of D fp64 numbers that Algorithm 1 may hold at a time
MORE_TOKENS = "of a size that does not grow; a chain of thought, with more tokens, buys more time"
CORRECTION = (
    "time L (12 n D² + 2 n² D) for the encoder and L (12 D² + 2 n D) for the decoder; see the "
    "erratum"
)
REMARK = (
    "in floating point the largest score must be taken out of exp first, which otherwise overflows"
)


def measure(records: Records) -> Findings:
    """Check Algorithm 1, and Table 1 both as printed and with the linear maps' n D² L in its time.

    As printed, Table 1 holds if no exponent found exceeds the printed one by more than a quarter.
    The correction holds if every count equals its formula L (12 n D² + 2 n² D), persistent memory
    is 2 n D L entries, and transient memory stays within ``MOST_PER_TOKEN`` n D entries for the
    encoder and ``MOST_PER_TOKEN`` D for the decoder at every shape and length. Algorithm 1 holds if
    it equals attention up to rounding and its live memory does not grow with n.
    """
    found = table_1(records)
    tokens = per_token(records)
    exact = formulas_hold(records)
    printed = all(reaches(found[f"{x}, Table 1"] + 0.25, found[f"{x}, found"]).all() for x in "nDL")
    counted = bool((exact["points"] == exact["equal"]).all())
    entries = tokens["D"] * BYTES * MOST_PER_TOKEN
    output = BYTES * VOCABULARY
    small = (tokens["encoder_transient"] <= entries * tokens["length"] + output).all()
    small = small and (tokens["decoder_transient"] <= entries + output).all()
    cfg = ModelConfig("entp", 1, 1, 64, VOCABULARY, 2**15)
    every = np.arange(1, 2**15 + 1)
    decoder = doubling(complexity.decoder_token(cfg, every))
    entp = doubling(complexity.encoder_token(cfg, every))
    grows = counted and abs(decoder - 2) < 0.1 and abs(entp - 3) < 0.1
    exponents = f"counted, n to 32,768: exponents {decoder:.2f} and {entp:.2f}"
    streamed = printed_error() < 1e-12 and all(map(is_streamed, records))
    return [
        checked("T1", printed, records, corrected=bool(counted and small), correction=CORRECTION),
        checked("T1-sequence", grows, records, remark=exponents),
        checked("T1-algorithms", grows, records, remark=MORE_TOKENS),
        checked("D-1", streamed, records, remark=REMARK),
    ]


def doubling(counts_n: np.ndarray) -> float:
    """Return the exponent, between n / 2 and n, of the cost of n tokens generated one by one."""
    return math.log2(counts_n.sum() / counts_n[: len(counts_n) // 2].sum())


def is_streamed(record: Record) -> bool:
    """Return whether Algorithm 1 equalled attention, to rounding, in memory independent of n."""
    sizes = record.curves["streamed_transient"]
    most = MOST_VECTORS * 8 * record.config.params["width"]
    exact = record.metrics["streamed_error"] < 1e-12
    return exact and len(set(sizes)) == 1 and max(sizes) <= most


COMPLEXITY = Experiment(
    "complexity", 1, "Time and memory of next tokens", "02_complexity", plan, measure, jobs=1
)
