"""Looped Transformers as computers (Giannou et al. 2023): the studies of notebook 11 by tier, tables, and verdicts."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from entp_lib.collection.experiment import Experiment, PlannedRun, name_of, planned_study, select
from entp_lib.collection.measurements import Check
from entp_lib.config import StudyConfig
from entp_lib.runs.records import Record

HALVES = [round(10 ** (-k / 2), 15) for k in range(2, 25)]  # two values of δ per power of 10
WIDEST = 8  # of a block, in d + 1: what a width of order d may be

TIERS: dict[str, dict[str, dict]] = {
    "smoke": {
        "looped_multiply": dict(x=3, y=2),
        "looped_random_programs": dict(shapes=[[4, 5, 6, 6], [8, 8, 8, 6]], steps=10, precisions=["fp32", "fp64"]),
        "looped_library": dict(precisions=["fp32"], only=["add", "multiply", "divide"]),
        "looped_circuits": dict(most_bits=3, random_pairs=100, flag_bits=4, pointer=2),
        "looped_copying": dict(cases=4, most_tokens=20, most_numbers=3),
        "looped_drift": dict(steps=200, heats=[6.0, 10.0], cold_steps=10),
        "looped_temperature": dict(bits=[4, 8], heats=[2.0, 12.0], programs=5, steps=5),
        "looped_off_target": dict(tokens=[16, 64], heats=[1.0, 4.0]),
        "looped_masks": dict(programs=5, steps=5),
        "looped_restricted": dict(programs=3, steps=5, sizes=[21]),
        "looped_product": dict(d=3, deltas=[1e-3, 1e-5, 1e-7, 1e-10, 1e-11], sinks=[10.0, 40.0], pairs=3),
        "looped_sigmoids": dict(terms=[10, 30]),
        "looped_transpose": dict(sizes=[2, 3], one_layer=[4]),
        "looped_contract": dict(sizes=[2]),
        "looped_depth": dict(levels=[0, 1, 14], deltas=[1e-2, 1e-4], points=100_003),
        "looped_fleq": dict(programs=2, commands=6),
        "looped_calculator": dict(terms=[10, 40], inputs=20),
        "looped_newton": dict(d=3, rounds=12, matrices=1),
        "looped_power": dict(d=3, rounds=12, terms=20, gap=0.7),
        "looped_regression": dict(features=2, examples=3, steps=4, rate=0.1),
        "looped_back_propagation": dict(inputs=2, hidden=2, samples=2, rounds=2, rate=0.2),
        "looped_least_squares": dict(dimension=2, most_examples=3, prompts=2, rounds=20),
        "looped_sizes": dict(bits=8, tokens=[16, 64]),
        "looped_errata": dict(),
        "looped_speed": dict(tokens=[21], batches=[1, 4], seconds=0.01),
    },
    "quick": {
        "looped_multiply": dict(x=6, y=5),
        "looped_random_programs": dict(
            shapes=[
                [4, 8, 11, 500],
                [8, 8, 11, 500],
                [12, 8, 11, 500],
                [16, 8, 11, 500],
                [8, 100, 60, 40],
                [16, 400, 40, 10],
            ],
            steps=50,
            precisions=["fp32", "fp64"],
        ),
        "looped_library": dict(precisions=["fp32", "fp64"], count3_length=6),
        "looped_circuits": dict(),
        "looped_copying": dict(cases=250),
        "looped_drift": dict(steps=100_000, heats=[4.0, 6.0, 8.0, 10.0, 12.0], cold_steps=40),
        "looped_temperature": dict(bits=[4, 8, 16, 20], heats=[float(h) for h in range(3, 23)], programs=20, steps=15),
        "looped_off_target": dict(tokens=[16, 64, 256, 1024], heats=[0.5 * k for k in range(1, 33)]),
        "looped_masks": dict(programs=100, steps=30),
        "looped_restricted": dict(programs=20, steps=20, sizes=[21, 65, 257]),
        "looped_product": dict(d=8, deltas=HALVES, sinks=[5.0 * k for k in range(1, 17)]),
        "looped_sigmoids": dict(terms=[10, 30, 100, 300, 1000]),
        "looped_transpose": dict(sizes=[2, 3, 5, 8], one_layer=[30]),
        "looped_contract": dict(sizes=[1, 2, 3, 5, 8]),
        "looped_depth": dict(levels=list(range(17)), deltas=HALVES[:15], points=100_003, units=2**16),
        "looped_fleq": dict(programs=100, commands=20),
        "looped_calculator": dict(terms=[50, 100, 200, 400, 800], inputs=200),
        "looped_newton": dict(d=5, rounds=25, matrices=5),
        "looped_power": dict(d=5, rounds=30, terms=100, gap=0.7),
        "looped_regression": dict(features=5, examples=5, steps=50, rate=0.05),
        "looped_back_propagation": dict(inputs=4, hidden=4, samples=4, rounds=13, rate=0.5),
        "looped_least_squares": dict(dimension=5, most_examples=10, prompts=4, rounds=22),
        "looped_sizes": dict(bits=8, tokens=[16, 32, 64, 128, 256, 512, 1024, 4096]),
        "looped_errata": dict(),
        "looped_speed": dict(tokens=[21, 65, 257], batches=[1, 32]),
    },
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """All studies; ``seeds`` changes nothing, since nothing is trained and what is random is drawn many times."""
    return [planned_study(StudyConfig("looped", tier, study, params)) for study, params in TIERS.get(tier, {}).items()]


def of_study(records: Sequence[Record], study: str) -> Record:
    """The record of a study, named without ``looped_``."""
    return next(iter(select(records, study=f"looped_{study}")))


def frame(record: Record) -> pd.DataFrame:
    """A study's curves, a row per case."""
    return pd.DataFrame(record.curves)


def program_table(records: Sequence[Record]) -> pd.DataFrame:
    """Programs and passes beside the interpreter, and how many were wrong, by tier of program and precision."""
    drawn, library = frame(of_study(records, "random_programs")), frame(of_study(records, "library"))
    names = [f"random, {b} bits, {n} tokens" for b, n in zip(drawn["bits"], drawn["tokens"], strict=True)]
    columns = ["program", "precision", "programs", "passes", "wrong", "deviation"]
    return pd.concat([drawn.assign(program=names)[columns], library[columns]], ignore_index=True)


MACHINES = {
    "SUBLEQ": "SUBLEQ (Lemma 4)",
    "inverse": "matrix inverse (Lemma 12)",
    "power": "power iteration (Lemma 13)",
    "SGD": "SGD (Lemma 15)",
    "calculator": "calculator (Theorem 4), m = 100",
}


def size_table(records: Sequence[Record]) -> pd.DataFrame:
    """Layers and heads beside the paper's, and the width, counted from built weights."""
    machines = of_study(records, "sizes").metrics["machines"]
    columns = ["paper_layers", "layers", "paper_heads", "heads", "width", "hidden", "weights"]
    table = pd.DataFrame({name: machines[name] for name in MACHINES.values()}).T[columns]
    return table.rename(columns={"paper_layers": "layers, paper", "paper_heads": "heads, paper"})


def errata_table(records: Sequence[Record]) -> pd.DataFrame:
    """What was counted for every erratum, with the printed formula and with the corrected one."""
    rows = []
    metrics = of_study(records, "errata").metrics
    for name in sorted(metrics, key=lambda erratum: int(erratum[1:])):
        found = metrics[name]
        both = {form: found.get(form, "") for form in ("printed", "corrected")}
        also = ", ".join(f"{k}: {v}" for k, v in found.items() if k not in both)
        rows.append({"erratum": name, **both, "also": also})
    return pd.DataFrame(rows).set_index("erratum")


def power(rows: pd.DataFrame) -> float:
    """With which power of m the largest error goes, by least squares."""
    return float(np.polyfit(np.log(rows["m"]), np.log(rows["error"]), 1)[0])


def measure(records: Sequence[Record]) -> list[Check]:
    """Every lemma, corollary and theorem of the text: verified if nothing that was tried went wrong."""
    found = {r.config.study.removeprefix("looped_"): r for r in records}
    if set(found) != {study.removeprefix("looped_") for study in TIERS["quick"]}:
        return []
    m, tier = {name: record.metrics for name, record in found.items()}, records[0].config.tier
    errata, machines = m["errata"], {short: m["sizes"]["machines"][name] for short, name in MACHINES.items()}
    exact = m["random_programs"]["wrong"] == m["library"]["wrong"] == 0
    circuits = m["circuits"]["wrong"] == 0
    copies = m["copying"]["largest_error"] < 1e-9
    slopes, fleq, newton = m["sigmoids"]["slopes"], m["fleq"], m["newton"]["largest_residual"]
    blocks = frame(found["contract"])
    blocks["width"] /= blocks["d"] + 1  # O(d)
    blocks = blocks.groupby("block")[["layers", "heads", "error", "width", "previous", "padding"]].max()
    widths = frame(found["sizes"])
    subleq = exact and m["drift"]["wrong"] == 0 and sized(machines["SUBLEQ"], 9, 2)
    subleq = subleq and (widths["width"] - 12 * widths["pointer"]).nunique() == 1  # all but 12 L is the same for all n
    followed = fleq["wrong_branches"] == 0 and fleq["largest_error"] < 1e-4
    squares = m["depth"]["best_attention"] < 1e-6 and abs(m["depth"]["factor_of_a_level"] - 4) < 0.1
    errors = frame(found["calculator"]).set_index("operation")
    # on its own an inverse errs as 1/√m at most, a root as 1/m
    alone = all(power(errors.loc[name]) <= most for name, most in (("inv", -0.5), ("sqrt", -0.9)))
    learned = [m[study]["largest_difference"] for study in ("back_propagation", "regression")]

    def check(claim: str, holds: bool | None, studies: str, corrected: bool | None = None, words: str = "") -> Check:
        ids = tuple(name_of(found[study]) for study in studies.split())
        right = None if corrected is None else bool(corrected)
        return Check(claim, None if holds is None else bool(holds), tier, right, words, ids)

    def built(claim: str, works: bool, machine: str, *studies: str) -> Check:
        """That 13 layers and one head suffice: ours may show it, and refutes nothing where it has more."""
        size, ids = machines[machine], tuple(name_of(found[study]) for study in (*studies, "sizes"))
        works = bool(works) and summing(size, 13)
        said = f"{size['layers']} layers with {size['heads']} heads do, as Theorem 2 allows; one head was not tried"
        remark = said if works else "the machine that was built does not"
        return Check(claim, True if works and size["heads"] == 1 else None, tier, records=ids, remark=remark)

    def headed(claim: str, near: bool, name: str) -> Check:
        """A function near enough by m sigmoids, whose block in the calculator of m = 100 has m heads and one more."""
        ids = tuple(name_of(found[study]) for study in ("sigmoids", "sizes"))
        few = machines["calculator"]["blocks"][name] <= 101
        return Check(claim, bool(near and few), tier, records=ids, remark="with m + 1 heads, one for the constant")

    def block(layers: int, *names: str, tolerance: float = 1e-9) -> bool:
        rows = blocks.loc[list(names)]
        within = rows["layers"].le(layers) & rows["heads"].eq(1) & rows["width"].le(WIDEST)
        within &= rows["error"].lt(tolerance) & rows["previous"].lt(1e-9) & rows["padding"].lt(1e-8)
        return m["contract"]["kept"] and within.all()

    def printed(*names: str) -> bool:
        """Whether what is printed never fails."""
        return all(errata[name]["printed"] == 0 for name in names)

    def mended(*names: str) -> bool:
        """Whether its correction never fails."""
        return all(errata[name]["corrected"] == 0 for name in names)

    return [
        check("LT-1", printed("E9"), "circuits errata", circuits and mended("E9"), "mod 2^d, or with d + 1 outputs"),
        check("LT-2", copies and m["off_target"]["within_bound"], "copying off_target"),
        check(
            "LT-3",
            printed("E2"),
            "copying errata",
            copies and exact and mended("E2"),
            "the second ReLU is subtracted",
        ),
        check(
            "LT-4.3",
            printed("E1", "E4"),
            "circuits errata",
            circuits and exact and mended("E1", "E4"),
            "1 - N in equation 4; the -1 of p_next only where the scratchpad bit is",
        ),
        check("LT-4", subleq, "random_programs library drift sizes"),
        check("LT-fn2", exact, "library"),
        check("LT-T2", followed and sized(fleq["size"], 13, 4), "fleq"),
        check("LT-C1", fleq["apart"] < 1e-4, "fleq"),
        check("LT-5.2", m["restricted"]["wrong"] == 0, "restricted"),
        check("LT-5", max(m["sigmoids"]["lemma_5"].values()) < 1e-10, "sigmoids"),
        check("LT-T3", None, "sigmoids"),
        check("LT-6", block(4, "A^T", tolerance=1e-8), "contract transpose"),
        check(
            "LT-6.2",
            errata["E7"]["printed"] < 0.1,
            "errata product",
            errata["E7"]["corrected"] < 1e-5,
            "e^C/δ softmax([δx, C]) - 1/δ is x up to δ",
        ),
        check("LT-7", block(2, "A^T B", "B^T A", "A^T A", "B^T B", tolerance=1e-3), "contract product"),
        check(
            "LT-6.3",
            squares and m["depth"]["one_wide_layer"] > m["depth"]["best_attention"],
            "depth",
            squares,
            "for networks of a width that does not grow; that they need it is cited there, not tried",
        ),
        check("LT-8", block(3, "A + B"), "contract"),
        check("LT-9", block(3, "A - B"), "contract"),
        check("LT-C2", block(2, "A^T B", tolerance=1e-3), "contract calculator"),
        check("LT-C3", block(2, "A / 100"), "contract"),
        check(
            "LT-10",
            errata["E10"]["dimension"] >= errata["E10"]["scale"],
            "errata sigmoids",
            errata["E10"]["sigmoids"] <= errata["E10"]["scale"],
            "the condition is on m, the number of sigmoids",
        ),
        check("LT-11", slopes["√x on [0, 100]"] <= -0.9, "sigmoids"),
        headed("LT-C4", slopes["1/x on [0.1, 10]"] <= -0.5, "inv"),
        headed("LT-C5", slopes["√x on [0, 100]"] <= -0.9, "sqrt"),
        Check(
            "LT-T4",
            bool(m["calculator"]["within_root_m"] and alone and summing(machines["calculator"], 12, inv=101, sqrt=101)),
            tier,
            records=tuple(name_of(found[study]) for study in ("calculator", "sizes")),
            remark="with m + 1 heads for each of 1/x and √x",
        ),
        check("LT-8-30", m["transpose"]["largest_error"] < 1e-8, "transpose"),
        check(
            "LT-12-start",
            errata["E8"]["printed"] == errata["E8"]["of"],
            "newton errata",
            newton["transposed, machine"] < 1e-3,
            "from ε A^T",
        ),
        built("LT-12", newton["transposed, machine"] < 1e-3, "inverse", "newton"),
        built("LT-13", m["power"]["cosine"] >= 0.999, "power", "power"),
        built("LT-15", max(learned) < 1e-2, "SGD", "back_propagation", "regression"),
    ]


def sized(built: dict, layers: int, heads: int) -> bool:
    """Whether a built machine has no more layers and heads than that."""
    return built["layers"] <= layers and built["heads"] <= heads


def summing(built: dict, layers: int, **heads: int) -> bool:
    """Whether a built machine has no more layers than that and no more heads than its blocks together (Theorem 2).

    ``heads``: how many a block may have at most, by its function.
    """
    blocks = built["blocks"]
    return sized(built, layers, sum(blocks.values())) and all(blocks[name] <= most for name, most in heads.items())


LOOPED = Experiment(
    name="looped",
    version=1,
    title="Looped Transformers as programmable computers",
    notebook="11_looped_transformers",
    plan=plan,
    measure=measure,
    jobs=1,
)
