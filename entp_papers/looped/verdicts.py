"""What the studies of the looped computer say of each lemma, corollary and theorem: verified if nothing went wrong."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from entp_lib.experiments.experiment import name_of
from entp_lib.experiments.measurements import Check
from entp_lib.records.store import Record
from entp_lib.statistics import reaches
from entp_papers.looped.tables import MACHINES, frame

WIDEST = 8  # of a block, in d + 1: what a width of order d may be


def verdicts(records: Sequence[Record]) -> list[Check]:
    """Every statement of the text, from the records of all studies of a tier."""
    tried = Tried(records)
    return [*of_the_computer(tried), *of_matrices(tried), *of_functions(tried), *of_algorithms(tried)]


class Tried:
    """What was tried: every study's metrics by its name without ``looped_``, and claims that name their records."""

    def __init__(self, records: Sequence[Record]):
        self.records = {r.config.study.removeprefix("looped_"): r for r in records}
        self.tier = records[0].config.tier
        self.metrics = {study: record.metrics for study, record in self.records.items()}
        self.errata = self.metrics["errata"]
        self.machines = {short: self.metrics["sizes"]["machines"][name] for short, name in MACHINES.items()}
        blocks = self.curves("contract")
        blocks["width"] /= blocks["d"] + 1  # O(d)
        self.blocks = blocks.groupby("block")[["layers", "heads", "error", "width", "previous", "padding"]].max()

    def __getitem__(self, study: str) -> dict:
        return self.metrics[study]

    def curves(self, study: str) -> pd.DataFrame:
        return frame(self.records[study])

    def check(
        self,
        claim: str,
        studies: str,
        holds: bool | None,
        corrected: bool | None = None,
        words: str = "",
        remark: str = "",
    ) -> Check:
        """A claim that ``holds`` as printed or is ``corrected``, in other ``words``; it rests on ``studies``."""
        ids = tuple(name_of(self.records[study]) for study in studies.split())
        holds, corrected = (None if x is None else bool(x) for x in (holds, corrected))
        return Check(claim, holds, self.tier, corrected, words, ids, remark)

    def built(self, claim: str, studies: str, works: bool, machine: str) -> Check:
        """That 13 layers and one head suffice: ours may show it, and refutes nothing where it has more."""
        size = self.machines[machine]
        works = bool(works) and summing(size, 13)
        said = f"{size['layers']} layers with {size['heads']} heads do, as Theorem 2 allows; one head was not tried"
        remark = said if works else "the machine that was built does not"
        return self.check(claim, f"{studies} sizes", True if works and size["heads"] == 1 else None, remark=remark)

    def headed(self, claim: str, near: bool, name: str) -> Check:
        """A function near enough by m sigmoids, whose block in the calculator of m = 100 has m heads and one more."""
        few = self.machines["calculator"]["blocks"][name] <= 101
        return self.check(claim, "sigmoids sizes", near and few, remark="with m + 1 heads, one for the constant")

    def block(self, layers: int, *names: str, tolerance: float = 1e-9) -> bool:
        """Whether blocks keep their contract and have no more than so many layers, one head and a width of order d."""
        rows = self.blocks.loc[list(names)]
        within = rows["layers"].le(layers) & rows["heads"].eq(1) & rows["width"].le(WIDEST)
        within &= rows["error"].lt(tolerance) & rows["previous"].lt(1e-9) & rows["padding"].lt(1e-8)
        return self["contract"]["kept"] and within.all()

    def printed(self, *names: str) -> bool:
        """Whether what is printed never fails."""
        return all(self.errata[name]["printed"] == 0 for name in names)

    def mended(self, *names: str) -> bool:
        """Whether its correction never fails."""
        return all(self.errata[name]["corrected"] == 0 for name in names)


def of_the_computer(tried: Tried) -> list[Check]:
    """Lemmas 1 to 5.2 and Theorem 2: circuits, pointers, SUBLEQ, FLEQ."""
    exact = tried["random_programs"]["wrong"] == tried["library"]["wrong"] == 0
    circuits = tried["circuits"]["wrong"] == 0
    copies = tried["copying"]["largest_error"] < 1e-9
    widths = tried.curves("sizes")
    subleq = exact and tried["drift"]["wrong"] == 0 and sized(tried.machines["SUBLEQ"], 9, 2)
    subleq = subleq and (widths["width"] - 12 * widths["pointer"]).nunique() == 1  # all but 12 L is the same for all n
    fleq = tried["fleq"]
    followed = fleq["wrong_branches"] == 0 and fleq["largest_error"] < 1e-4
    return [
        tried.check(
            "LT-1",
            "circuits errata",
            tried.printed("E9"),
            circuits and tried.mended("E9"),
            "mod 2^d, or with d + 1 outputs",
        ),
        tried.check("LT-2", "copying off_target", copies and tried["off_target"]["within_bound"]),
        tried.check(
            "LT-3",
            "copying errata",
            tried.printed("E2"),
            copies and exact and tried.mended("E2"),
            "the second ReLU is subtracted",
        ),
        tried.check(
            "LT-4.3",
            "circuits errata",
            tried.printed("E1", "E4"),
            circuits and exact and tried.mended("E1", "E4"),
            "1 - N in equation 4; the -1 of p_next only where the scratchpad bit is",
        ),
        tried.check("LT-4", "random_programs library drift sizes", subleq),
        tried.check("LT-fn2", "library", exact),
        tried.check("LT-T2", "fleq", followed and sized(fleq["size"], 13, 4)),
        tried.check("LT-C1", "fleq", fleq["apart"] < 1e-4),
        tried.check("LT-5.2", "restricted", tried["restricted"]["wrong"] == 0),
    ]


def of_matrices(tried: Tried) -> list[Check]:
    """Lemmas 6 to 9 with their corollaries: transposes, products, sums."""
    product = tried.errata["E7"]
    return [
        tried.check("LT-6", "contract transpose", tried.block(4, "A^T", tolerance=1e-8)),
        tried.check(
            "LT-6.2",
            "errata product",
            product["printed"] < 0.1,
            product["corrected"] < 1e-5,
            "e^C/δ softmax([δx, C]) - 1/δ is x up to δ",
        ),
        tried.check("LT-7", "contract product", tried.block(2, "A^T B", "B^T A", "A^T A", "B^T B", tolerance=1e-3)),
        tried.check("LT-8", "contract", tried.block(3, "A + B")),
        tried.check("LT-9", "contract", tried.block(3, "A - B")),
        tried.check("LT-C2", "contract calculator", tried.block(2, "A^T B", tolerance=1e-3)),
        tried.check("LT-C3", "contract", tried.block(2, "A / 100")),
        tried.check("LT-8-30", "transpose", tried["transpose"]["largest_error"] < 1e-8),
    ]


def of_functions(tried: Tried) -> list[Check]:
    """Functions by sums of sigmoids, squares by depth, and the calculator."""
    slopes, depth, bound = tried["sigmoids"]["slopes"], tried["depth"], tried.errata["E10"]
    squares = depth["best_attention"] < 1e-6 and abs(depth["factor_of_a_level"] - 4) < 0.1
    errors = tried.curves("calculator").set_index("operation")
    # on its own an inverse errs as 1/√m at most, a root as 1/m
    alone = all(reaches(most, power(errors.loc[name])) for name, most in (("inv", -0.5), ("sqrt", -0.9)))
    small = summing(tried.machines["calculator"], 12, inv=101, sqrt=101)
    return [
        tried.check("LT-5", "sigmoids", max(tried["sigmoids"]["lemma_5"].values()) < 1e-10),
        tried.check("LT-T3", "sigmoids", None),
        tried.check(
            "LT-6.3",
            "depth",
            squares and depth["one_wide_layer"] > depth["best_attention"],
            squares,
            "for networks of a width that does not grow; that they need it is cited there, not tried",
        ),
        tried.check(
            "LT-10",
            "errata sigmoids",
            bound["dimension"] >= bound["scale"],
            bound["sigmoids"] <= bound["scale"],
            "the condition is on m, the number of sigmoids",
        ),
        tried.check("LT-11", "sigmoids", slopes["√x on [0, 100]"] <= -0.9),
        tried.headed("LT-C4", slopes["1/x on [0.1, 10]"] <= -0.5, "inv"),
        tried.headed("LT-C5", slopes["√x on [0, 100]"] <= -0.9, "sqrt"),
        tried.check(
            "LT-T4",
            "calculator sizes",
            tried["calculator"]["within_root_m"] and alone and small,
            remark="with m + 1 heads for each of 1/x and √x",
        ),
    ]


def of_algorithms(tried: Tried) -> list[Check]:
    """Lemmas 12 to 15: inverses, power iteration, gradient descent."""
    start, residual = tried.errata["E8"], tried["newton"]["largest_residual"]["transposed, machine"]
    learned = [tried[study]["largest_difference"] for study in ("back_propagation", "regression")]
    return [
        tried.check("LT-12-start", "newton errata", start["printed"] == start["of"], residual < 1e-3, "from ε A^T"),
        tried.built("LT-12", "newton", residual < 1e-3, "inverse"),
        tried.built("LT-13", "power", tried["power"]["cosine"] >= 0.999, "power"),
        tried.built("LT-15", "back_propagation regression", max(learned) < 1e-2, "SGD"),
    ]


def power(rows: pd.DataFrame) -> float:
    """With which power of m the largest error goes, by least squares."""
    return float(np.polyfit(np.log(rows["m"]), np.log(rows["error"]), 1)[0])


def sized(built: dict, layers: int, heads: int) -> bool:
    """Whether a built machine has no more layers and heads than that."""
    return built["layers"] <= layers and built["heads"] <= heads


def summing(built: dict, layers: int, **heads: int) -> bool:
    """Whether a built machine has no more layers than that and no more heads than its blocks together (Theorem 2).

    ``heads``: how many a block may have at most, by its function.
    """
    blocks = built["blocks"]
    return sized(built, layers, sum(blocks.values())) and all(blocks[name] <= most for name, most in heads.items())
