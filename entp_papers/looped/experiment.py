"""Looped Transformers as computers (Giannou et al. 2023): tiers, tables and verdicts of notebook 11."""

from collections.abc import Sequence

import pandas as pd

from entp_lab.experiment import Experiment
from entp_lab.frames import published
from entp_lab.measurements import Check
from entp_lab.statistics import reaches, to_figures
from entp_lab.store import Record
from entp_lab.studies import by_study, checker, frame, of_study, plan_studies
from entp_lab.theory import checks_of
from entp_papers.looped.block_studies import slope

WIDEST = 8  # of a block, in d + 1: taken as of order d
MACHINES = {
    "SUBLEQ": "SUBLEQ (Lemma 4)",
    "inverse": "matrix inverse (Lemma 12)",
    "power": "power iteration (Lemma 13)",
    "SGD": "SGD (Lemma 15)",
    "calculator": "calculator (Theorem 4), m = 100",
}
HALVES = [round(10 ** (-k / 2), 15) for k in range(2, 25)]  # two values of δ per power of 10

TIERS: dict[str, dict[str, dict]] = {
    "smoke": {
        "multiply": dict(x=3, y=2),
        "random_programs": dict(shapes=[[4, 5, 6, 6], [8, 8, 8, 6]], steps=10, precisions=["fp32", "fp64"]),
        "library": dict(precisions=["fp32"], only=["add", "multiply", "divide"]),
        "circuits": dict(most_bits=3, random_pairs=100, flag_bits=4, pointer=2),
        "copying": dict(cases=4, most_tokens=20, most_numbers=3),
        "drift": dict(steps=200, heats=[6.0, 10.0], cold_steps=10),
        "temperature": dict(bits=[4, 8], heats=[2.0, 12.0], programs=5, steps=5),
        "off_target": dict(tokens=[16, 64], heats=[1.0, 4.0]),
        "masks": dict(programs=5, steps=5),
        "restricted": dict(programs=3, steps=5, sizes=[21]),
        "product": dict(d=3, deltas=[1e-3, 1e-5, 1e-7, 1e-10, 1e-11], sinks=[10.0, 40.0], pairs=3),
        "sigmoids": dict(terms=[10, 30]),
        "transpose": dict(sizes=[2, 3], one_layer=[4]),
        "contract": dict(sizes=[2]),
        "depth": dict(levels=[0, 1, 14], deltas=[1e-2, 1e-4], points=100_003),
        "fleq": dict(programs=2, commands=6),
        "calculator": dict(terms=[10, 40], inputs=20),
        "newton": dict(d=3, rounds=12, matrices=1),
        "power": dict(d=3, rounds=12, terms=20, gap=0.7),
        "regression": dict(features=2, examples=3, steps=4, rate=0.1),
        "back_propagation": dict(inputs=2, hidden=2, samples=2, rounds=2, rate=0.2),
        "least_squares": dict(dimension=2, most_examples=3, prompts=2, rounds=20),
        "sizes": dict(bits=8, tokens=[16, 64]),
        "errata": dict(),
        "speed": dict(tokens=[21], batches=[1, 4], seconds=0.01),
    },
    "quick": {
        "multiply": dict(x=6, y=5),
        "random_programs": dict(
            shapes=[*([bits, 8, 11, 500] for bits in (4, 8, 12, 16)), [8, 100, 60, 40], [16, 400, 40, 10]],
            steps=50,
            precisions=["fp32", "fp64"],
        ),
        "library": dict(precisions=["fp32", "fp64"], count3_length=6),
        "circuits": dict(),
        "copying": dict(cases=250),
        "drift": dict(steps=100_000, heats=[4.0, 6.0, 8.0, 10.0, 12.0], cold_steps=40),
        "temperature": dict(bits=[4, 8, 16, 20], heats=[float(h) for h in range(3, 23)], programs=20, steps=15),
        "off_target": dict(tokens=[16, 64, 256, 1024], heats=[0.5 * k for k in range(1, 33)]),
        "masks": dict(programs=100, steps=30),
        "restricted": dict(programs=20, steps=20, sizes=[21, 65, 257]),
        "product": dict(d=8, deltas=HALVES, sinks=[5.0 * k for k in range(1, 17)]),
        "sigmoids": dict(terms=[10, 30, 100, 300, 1000]),
        "transpose": dict(sizes=[2, 3, 5, 8], one_layer=[30]),
        "contract": dict(sizes=[1, 2, 3, 5, 8]),
        "depth": dict(levels=list(range(17)), deltas=HALVES[:15], points=100_003, units=2**16),
        "fleq": dict(programs=100, commands=20),
        "calculator": dict(terms=[50, 100, 200, 400, 800], inputs=200),
        "newton": dict(d=5, rounds=25, matrices=5),
        "power": dict(d=5, rounds=30, terms=100, gap=0.7),
        "regression": dict(features=5, examples=5, steps=50, rate=0.05),
        "back_propagation": dict(inputs=4, hidden=4, samples=4, rounds=13, rate=0.5),
        "least_squares": dict(dimension=5, most_examples=10, prompts=4, rounds=22),
        "sizes": dict(bits=8, tokens=[16, 32, 64, 128, 256, 512, 1024, 4096]),
        "errata": dict(),
        "speed": dict(tokens=[21, 65, 257], batches=[1, 32]),
    },
}


def program_table(records: Sequence[Record]) -> pd.DataFrame:
    """Programs and passes compared with the interpreter, and how many were wrong, by program and precision."""
    drawn, library = frame(records, "random_programs"), frame(records, "library")
    names = [f"random, {b} bits, {n} tokens" for b, n in zip(drawn["bits"], drawn["tokens"], strict=True)]
    rows = pd.concat([drawn.assign(program=names), library])
    by = dict(index=["program", "programs", "passes"], columns="precision", values=["wrong", "deviation"])
    return rows.pivot_table(**by, aggfunc="sum", sort=False).reset_index(["programs", "passes"])


def size_table(records: Sequence[Record]) -> pd.DataFrame:
    """Layers and heads by the paper and as built, and the width, counted from built weights."""
    machines = of_study(records, "sizes").metrics["machines"]
    columns = ["paper_layers", "layers", "paper_heads", "heads", "width", "hidden", "weights"]
    table = pd.DataFrame.from_dict({name: machines[name] for name in MACHINES.values()}, orient="index")
    return table[columns].rename(columns={"paper_layers": "layers, paper", "paper_heads": "heads, paper"})


def errata_table(records: Sequence[Record]) -> pd.DataFrame:
    """Every erratum: the printed formula, the corrected one, and what is counted with either."""
    metrics, rows = of_study(records, "errata").metrics, {}
    for name, found in metrics.items():
        both = {form: found.get(form, "") for form in ("printed", "corrected")}
        elsewhere = {f"elsewhere, {form}": value for form, value in found.get("left_elsewhere", {}).items()}
        more = {k: v for k, v in found.items() if k not in (*both, "left_elsewhere")} | elsewhere
        rows[name] = {**both, "also": ", ".join(f"{k}: {to_figures(v)}" for k, v in more.items())}
    formulas = published("looped", "errata").set_index("erratum").rename(columns=lambda c: c.replace("_", " "))
    return formulas.join(pd.DataFrame.from_dict(rows, orient="index"))


def fits(built: dict, layers: int, **most: int) -> bool:
    """Whether a machine has so few layers, no more heads than its blocks together (Theorem 2), and its blocks these."""
    blocks = built["blocks"]
    within = built["layers"] <= layers and built["heads"] <= sum(blocks.values())
    return within and all(blocks[name] <= heads for name, heads in most.items())


def measure(records: Sequence[Record]) -> list[Check]:
    """Every lemma, corollary and theorem of the text, once all studies of a tier are there."""
    found = {study: record.metrics for study, record in by_study(records).items()}
    if set(found) != set(TIERS["quick"]):
        return []
    errata, checks, make = found["errata"], [], checker(records)
    machines = {short: found["sizes"]["machines"][name] for short, name in MACHINES.items()}

    def check(*arguments, **remark: str) -> None:
        checks.append(make(*arguments, **remark))

    def never_fails(form: str, *names: str) -> bool:
        """Whether the printed or the corrected form never fails."""
        return all(errata[name][form] == 0 for name in names)

    # the computer: circuits, pointers, SUBLEQ, FLEQ
    exact = found["random_programs"]["wrong"] == found["library"]["wrong"] == 0
    circuits, copies = found["circuits"]["wrong"] == 0, found["copying"]["largest_error"] < 1e-9
    adders = frame(records, "circuits").query("circuit.str.startswith('adder')")
    units = (adders["hidden"] / adders["circuit"].str.extract(r"(\d+)", expand=False).astype(int)).max() - 2
    corrected = circuits and units <= 8 and never_fails("corrected", "E9")
    words = f"mod 2^d, or with d + 1 outputs; {units:g}d hidden units, and 2d more that remove the old value"
    check("LT-1", "circuits errata", never_fails("printed", "E9"), corrected, words)
    corrected = copies and exact and never_fails("corrected", "E2")
    studies, words = "copying errata random_programs library", "the second ReLU is subtracted"
    check("LT-3", studies, never_fails("printed", "E2"), corrected, words)
    corrected = circuits and exact and never_fails("corrected", "E1", "E4")
    words = "1 - N in equation 4; the -1 of p_next only where the scratchpad bit is"
    check("LT-4.3", "circuits errata random_programs library", never_fails("printed", "E1", "E4"), corrected, words)
    size, widths = machines["SUBLEQ"], frame(records, "sizes")
    small = size["layers"] <= 9 and size["heads"] <= 2
    small = small and (widths["width"] - 12 * widths["pointer"]).nunique() == 1  # all but 12 L is the same for all n
    check("LT-4", "random_programs library drift sizes", exact and found["drift"]["wrong"] == 0 and small)
    check("LT-fn2", "random_programs library", exact)

    # matrices: blocks that keep their contract, with so many layers, one head and a width of order d
    contract = frame(records, "contract")
    contract["width"] /= contract["d"] + 1
    contract = contract.groupby("block")[["layers", "heads", "error", "width", "previous", "padding"]].max()

    def block(layers: int, *names: str, tolerance: float = 1e-9) -> bool:
        rows = contract.loc[list(names)]
        within = rows["layers"].le(layers) & rows["heads"].eq(1) & rows["width"].le(WIDEST)
        within &= rows["error"].lt(tolerance) & rows["previous"].lt(1e-9) & rows["padding"].lt(1e-8)
        return found["contract"]["kept"] and within.all()

    check("LT-6", "contract", block(4, "A^T", tolerance=1e-8))
    printed, corrected = errata["E7"]["printed"] < 0.1, errata["E7"]["corrected"] < 1e-5
    check("LT-6.2", "errata", printed, corrected, "e^C/δ softmax([δx, C]) - 1/δ is x up to δ")
    check("LT-7", "contract", block(2, "A^T B", "B^T A", "A^T A", "B^T B", tolerance=1e-3))
    check("LT-8", "contract", block(3, "A + B"))
    check("LT-9", "contract", block(3, "A - B"))
    check("LT-C2", "contract", block(2, "A^T B", tolerance=1e-3))
    check("LT-C3", "contract", block(2, "A / 100"))

    # functions by sums of sigmoids, squares by depth, the calculator
    slopes, depth, bound = found["sigmoids"]["slopes"], found["depth"], errata["E10"]
    check("LT-5", "sigmoids", max(found["sigmoids"]["lemma_5"].values()) < 1e-10)
    check("LT-T3", "sigmoids", None)
    squares = depth["best_attention"] < 1e-6 and abs(depth["factor_of_a_level"] - 4) < 0.1
    words = "for networks of a width that does not grow; that they need it is cited there, not tried"
    check("LT-6.3", "depth", squares and depth["one_wide_layer"] > depth["best_attention"], squares, words)
    printed, corrected = bound["dimension"] >= bound["scale"], bound["sigmoids"] <= bound["scale"]
    check("LT-10", "errata", printed, corrected, "the condition is on m, the number of sigmoids")
    inverses, roots = slopes["1/x on [0.1, 10]"] <= -0.5, slopes["√x on [0, 100]"] <= -0.9
    check("LT-11", "sigmoids", roots)
    few = machines["calculator"]["blocks"]

    # printed for wider ranges, which were not tried
    words = "on {}, the range that was tried, and with m + 1 heads, one for the constant"
    check("LT-C4", "sigmoids sizes", False, inverses and few["inv"] <= 101, words.format("[0.1, 10]"))
    check("LT-C5", "sigmoids sizes", False, roots and few["sqrt"] <= 101, words.format("[0, 100]"))
    errors = frame(records, "calculator").groupby("operation")
    # on its own an inverse errs as 1/√m at most, a root as 1/m
    inv, sqrt = (slope(errors.get_group(name).to_dict("records"), "m") for name in ("inv", "sqrt"))
    alone = reaches(-0.5, inv) and reaches(-0.9, sqrt)
    holds = found["calculator"]["within_root_m"] and alone and fits(machines["calculator"], 12, inv=101, sqrt=101)
    words = "on numbers in [0.1, 10], the range that was tried, and with m + 1 heads for each of 1/x and √x"
    check("LT-T4", "calculator sizes", False, holds, words)

    # algorithms: 13 layers and one head suffice. Ours may show it, and refutes nothing where it has more heads
    start, residual = errata["E8"], found["newton"]["largest_residual"]["transposed, machine"]
    check("LT-12-start", "newton errata", start["printed"] == start["of"], residual < 1e-3, "from ε A^T")
    learned = max(found[study]["largest_difference"] for study in ("back_propagation", "regression"))
    for claim, studies, works, name in (
        ("LT-12", "newton", residual < 1e-3, "inverse"),
        ("LT-13", "power", found["power"]["cosine"] >= 0.999, "power"),
        ("LT-15", "back_propagation regression", learned < 1e-2, "SGD"),
    ):
        size = machines[name]
        works = works and fits(size, 13)
        allowed = f"{size['layers']} layers with {size['heads']} heads do, as Theorem 2 allows; one head was not tried"
        remark = allowed if works else "the machine that was built does not"
        check(claim, f"{studies} sizes", True if works and size["heads"] == 1 else None, remark=remark)
    return [*checks_of("entp_papers.looped.claims")(records), *checks]


LOOPED = Experiment(
    name="looped",
    version=1,
    title="Looped Transformers as programmable computers",
    notebook="11_looped_transformers",
    plan=plan_studies("looped", TIERS),
    measure=measure,
    jobs=1,
)
