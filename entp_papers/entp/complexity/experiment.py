"""Costs of next tokens (§5, Table 1, appendix D): measured by length for several shapes, and
judged.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from entp_lab.experiment import Experiment
from entp_lab.measurements import Check
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.statistics import reaches, to_figures
from entp_lab.store import Record
from entp_lib import costs as complexity
from entp_lib.config import SIZES, ModelConfig
from entp_papers.entp.complexity.measurements import VOCABULARY, printed_error

BYTES = 4  # of an fp32 entry
# A share of the paper's own measure n D that transient memory may take before "O(n D)" stops being
# a fair summary, in entries: residual stream, normed input, queries, keys and values, hidden layer
# before and after its GELU.
MOST_PER_TOKEN = 20

OCTAVES = [2**k for k in range(4, 13)]
HALVES = sorted([*OCTAVES, *(3 * 2**k for k in range(3, 11))])
SHORT = [128, 256]


def study_of(*values) -> dict:
    """Parameters of a study of one shape."""
    names = (
        "n_layers",
        "n_heads",
        "width",
        "lengths",
        "sequence_lengths",
        "rounds",
        "sequence_rounds",
    )
    return dict(zip(names, values, strict=True))


TIERS: dict[str, list[dict]] = {
    "smoke": [
        study_of(2, 1, 8, [8, 16, 32, 64], [8, 16], 1, 1),
        study_of(2, 1, 32, [8, 16], [8], 1, 1),
        study_of(3, 1, 8, [8, 16], [8], 1, 1),
    ],
    "quick": [
        # attention outweighs the linear maps from n = 96 on
        study_of(2, 1, 16, HALVES, [32, 64, 128, 256, 512, 1024], 9, 2),
        study_of(*SIZES["small"].values(), OCTAVES[:-1], [16, 32, 64, 128, 256], 9, 2),
        study_of(*SIZES["medium"].values(), OCTAVES[:-1], [16, 32, 64, 128], 5, 2),
        *(study_of(2, d // 16, d, SHORT, [64], 5, 5) for d in (32, 64, 128, 256, 512)),
        *(study_of(n, 4, 64, SHORT, [64], 5, 5) for n in (1, 3, 4, 6, 8)),
    ],
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """One study per shape; ``seeds`` changes nothing, for costs do not depend on weights."""
    shapes = (
        (params, "{n_layers}/{n_heads}/{width}".format(**params)) for params in TIERS.get(tier, [])
    )
    return [
        planned_study("complexity", tier, "costs", params, shape=shape) for params, shape in shapes
    ]


def shape_title(record: Record) -> str:
    """Return the shape in words, for a panel: "3 layers, 3 heads, width 192"."""
    p = record.config.params
    return (
        f"{p['n_layers']} layers, {p['n_heads']} head{'s' * (p['n_heads'] > 1)}, width {p['width']}"
    )


def of_shape(n_layers: int, width: int, longest: int) -> ModelConfig:
    """Return a model to count for, with heads of width 64, or one head."""
    return ModelConfig("entp", n_layers, max(1, width // 64), width, VOCABULARY, longest)


def shape_of(record: Record) -> ModelConfig:
    """Return the model whose costs a record holds."""
    p = record.config.params
    longest = max(*p["lengths"], *p["sequence_lengths"])
    return ModelConfig("entp", p["n_layers"], p["n_heads"], p["width"], VOCABULARY, longest)


def per_token(records: Sequence[Record]) -> pd.DataFrame:
    """Long: one row per shape and length, costs of the next token after ``length`` of them."""
    parts = []
    for record in records:
        p = record.config.params
        own = {
            k: v
            for k, v in record.curves.items()
            if k.startswith(("encoder_", "decoder_")) and "_pass_" not in k
        }
        about = {
            "shape": record.labels["shape"],
            "L": p["n_layers"],
            "H": p["n_heads"],
            "D": p["width"],
        }
        parts.append(pd.DataFrame({**about, "length": record.curves["length"], **own}))
    return pd.concat(parts, ignore_index=True)


def slopes(lengths: Sequence[int], values: Sequence[float]) -> pd.DataFrame:
    """Exponent d log value / d log n between lengths an octave apart, at their geometric mean."""
    known = dict(zip(lengths, values, strict=True))
    rows = [
        (math.sqrt(n * 2 * n), math.log2(known[2 * n] / known[n]))
        for n in lengths
        if 2 * n in known
    ]
    return pd.DataFrame(rows, columns=["length", "slope"])


def fit(lengths: Sequence[int], values: Sequence[float], powers: Sequence[int]) -> dict[int, float]:
    """Coefficients c_p ≥ 0 of value = Σ c_p n^p with the least squared relative error."""
    n = np.asarray(lengths, float)
    y = np.asarray(values, float)
    design = np.stack([n**p / y for p in powers], 1)
    scale = design.max(0)
    from scipy.optimize import nnls  # slow to import, and needed here alone

    found, _ = nnls(design / scale, np.ones(len(n)))
    return dict(zip(powers, found / scale, strict=True))


def fitted(coefficients: dict[int, float], lengths: Sequence[int]) -> np.ndarray:
    """Return the values of a ``fit`` at the given lengths."""
    return sum(c * np.asarray(lengths, float) ** p for p, c in coefficients.items())


ENOUGH = 5  # lengths of a shape, to fit its times


def fits(records: Sequence[Record]) -> pd.DataFrame:
    """Both terms of the time per token for shapes with ``ENOUGH`` lengths or more, as rates and
    crossovers.

    Encoder c₀ + c₁ n + c₂ n²: c₁ is the linear maps' share, 12 D² L multiply-adds, c₂ attention's,
    2 D L. ``linear`` and ``attention`` are the rates (multiply-adds per second) that these imply;
    ``crossover`` is c₁ / c₂, next to the counted one. Decoder c₀ + c₁ n. ``worst`` is the largest
    relative error of a fit.
    """
    rows = {}
    for record in records:
        cfg = shape_of(record)
        curves = record.curves
        lengths = curves["length"]
        if len(lengths) < ENOUGH:
            continue
        for name, powers in (("encoder", (0, 1, 2)), ("decoder", (0, 1))):
            y = np.asarray(curves[f"{name}_seconds"])
            c = fit(lengths, y, powers)
            linear = (
                12 * cfg.width**2 * cfg.n_layers / c[1] if name == "encoder" and c[1] else math.nan
            )
            last = c[powers[-1]]
            rows[record.labels["shape"], name] = {
                **{
                    "fixed (ms)": 1e3 * c[0],
                    "per n (µs)": 1e6 * c[1],
                    "per n² (ns)": 1e9 * c.get(2, math.nan),
                },
                "linear maps (10⁹/s)": linear / 1e9,
                "attention (10⁹/s)": 2 * cfg.width * cfg.n_layers / last / 1e9
                if last
                else math.nan,
                "crossover measured": c[1] / c[2] if c.get(2) else math.nan,
                "counted, 6 D": complexity.crossover(cfg) if name == "encoder" else math.nan,
                "worst": np.abs(fitted(c, lengths) / y - 1).max(),
            }
    return pd.DataFrame.from_dict(rows, orient="index").map(to_figures, decimals=3)


def exponent(table: pd.DataFrame, by: str, column: str) -> float:
    """Exponent of ``column`` in ``by`` (n as ``length``, D or L), between its ends."""
    part = table.groupby(by)[column].mean()
    first = part.index[0]
    last = part.index[-1]
    return math.log(part[last] / part[first]) / math.log(last / first)


def formulas_hold(records: Sequence[Record]) -> pd.DataFrame:
    """For each counted quantity, at how many points it equals the formula of ``entp_lib.costs``."""
    rows = {}
    for name, length, formula in (
        ("encoder_operations", "length", complexity.encoder_token),
        ("decoder_operations", "length", complexity.decoder_token),
        ("decoder_pass_operations", "sequence_length", complexity.decoder_pass),
        ("decoder_persistent", "length", lambda cfg, n: BYTES * 2 * n * cfg.width * cfg.n_layers),
    ):
        equal = []
        for r in records:
            shape = shape_of(r)
            equal += [
                value == formula(shape, n)
                for n, value in zip(r.curves[length], r.curves[name], strict=True)
            ]
        rows[name] = {"points": len(equal), "equal": sum(equal)}
    return pd.DataFrame.from_dict(rows, orient="index")


def table_1(records: Sequence[Record]) -> pd.DataFrame:
    """Exponents in n, D and L of each cost: those of Table 1, and those found.

    Operations and persistent memory are counted, transient memory is measured from tensors. n: at
    the narrowest shape, between its longest lengths; D and L: at the shortest common length.
    """
    tokens = per_token(records)
    narrow = tokens[tokens["D"] == tokens["D"].min()]
    narrow = narrow[narrow["L"] == narrow["L"].min()]
    longest = narrow[narrow["length"] >= narrow["length"].max() / 2]
    n = min(set.intersection(*(set(part["length"]) for _, part in tokens.groupby("shape"))))
    at_n = tokens[tokens["length"] == n]
    same_depth = at_n.groupby("L")["D"].nunique().idxmax()
    same_width = at_n.groupby("D")["L"].nunique().idxmax()
    rows = {}
    for what, column, printed in (
        ("encoder, operations", "encoder_operations", (2, 1, 1)),
        ("decoder, operations", "decoder_operations", (1, 1, 1)),
        ("decoder, persistent bytes", "decoder_persistent", (1, 1, 1)),
        ("encoder, transient bytes", "encoder_transient", (1, 1, 0)),
        ("decoder, transient bytes", "decoder_transient", (0, 1, 0)),
    ):
        rows[what] = {
            **{f"{letter}, Table 1": p for letter, p in zip("nDL", printed, strict=True)},
            "n, found": exponent(longest, "length", column),
            "D, found": exponent(at_n[at_n["L"] == same_depth], "D", column),
            "L, found": exponent(at_n[at_n["D"] == same_width], "L", column),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


MOST_VECTORS = 5  # of D numbers of 8 bytes, that Algorithm 1 may hold at a time
REMARK = (
    "in floating point the largest score must be taken out of exp first, which otherwise overflows"
)


def measure(records: Sequence[Record]) -> list[Check]:
    """Table 1, judged as printed and with the linear maps' n D² L added to the time, and Algorithm
    1.

    As printed it holds if no exponent found exceeds the printed one by a quarter. The correction
    holds if every count equals its formula L (12 n D² + 2 n² D), persistent memory is 2 n D L
    entries, and transient memory stays within ``MOST_PER_TOKEN`` n D entries for the encoder and D
    entries for the decoder at every shape and length. Algorithm 1 holds if it is attention to
    rounding and what is live for it does not grow with n.
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
    correction = "time L (12 n D² + 2 n² D) for the encoder and L (12 D² + 2 n D) for the decoder; see the erratum"
    cfg = of_shape(1, 64, 2**15)
    found_exponents = []
    for each in (
        complexity.decoder_token,
        complexity.encoder_token,
    ):  # of n tokens one by one, between two lengths
        counts = each(cfg, np.arange(1, 2**15 + 1))
        found_exponents.append(math.log2(counts.sum() / counts[: 2**14].sum()))
    decoder, entp = found_exponents
    grows = counted and abs(decoder - 2) < 0.1 and abs(entp - 3) < 0.1
    streamed = printed_error() < 1e-12
    for r in records:
        sizes = r.curves["streamed_transient"]
        most = MOST_VECTORS * 8 * r.config.params["width"]
        streamed = (
            streamed
            and r.metrics["streamed_error"] < 1e-12
            and len(set(sizes)) == 1
            and max(sizes) <= most
        )
    tier = records[0].config.tier
    ids = tuple(r.name for r in records)
    exponents = f"counted, n to 32,768: exponents {decoder:.2f} and {entp:.2f}"
    return [
        Check("T1", printed, tier, bool(counted and small), correction, ids),
        Check("T1-sequence", grows, tier, records=ids, remark=exponents),
        Check("D-1", streamed, tier, records=ids, remark=REMARK),
    ]


# Multiply-adds for all n next tokens of a sequence: ENTP as this library computes it, ENTP by the
# definition's loop, a decoder's pass.
ALL_TOKENS: dict[str, Callable[[ModelConfig, int], int]] = {
    "fast": lambda cfg, n: complexity.training_pass(cfg, range(1, n + 1), n),
    "loop": lambda cfg, n: sum(complexity.encoder_token(cfg, m) for m in range(1, n + 1)),
    "decoder": complexity.decoder_pass,
}
GRID = tuple(round(2 ** (k / 2)) for k in range(8, 23))  # 16 to 2,048 in half octaves


def training_grid(n_layers: int, rate: float, batch: int, method: str) -> pd.DataFrame:
    """Seconds of a training step (backward counts twice) at ``rate`` multiply-adds/s, by width and
    length.
    """
    widths = range(64, 1025, 64)
    counts = {n: {d: ALL_TOKENS[method](of_shape(n_layers, d, n), n) for d in widths} for n in GRID}
    return 3 * batch * pd.DataFrame(counts) / rate


def relative_cost(n_layers: int, width: int) -> pd.DataFrame:
    """ENTP's operations for all next tokens as a multiple of a decoder's pass, by length and
    method.
    """
    counts = {
        name: [count(of_shape(n_layers, width, n), n) for n in GRID]
        for name, count in ALL_TOKENS.items()
    }
    table = pd.DataFrame(counts, index=pd.Index(GRID, name="length"))
    return table[["fast", "loop"]].div(table["decoder"], axis=0)


def best_rate(records: Sequence[Record]) -> float:
    """Return the most multiply-adds a second of this library's ENTP, each shape on its longest
    sequence.
    """
    longest = [
        (shape_of(r), r.curves["sequence_length"][-1], r.curves["fast_seconds"][-1])
        for r in records
    ]
    return max(ALL_TOKENS["fast"](cfg, n) / seconds for cfg, n, seconds in longest)


COMPLEXITY = Experiment(
    "complexity", 1, "Time and memory of next tokens", "02_complexity", plan, measure, jobs=1
)
