"""Tables of notebook 11, from the records of its studies."""

from collections.abc import Sequence

import pandas as pd

from entp_lib.experiments.experiment import select
from entp_lib.records.store import Record
from entp_lib.statistics import to_figures


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
        also = ", ".join(f"{k}: {to_figures(v)}" for k, v in found.items() if k not in both)
        rows.append({"erratum": name, **both, "also": also})
    return pd.DataFrame(rows).set_index("erratum")
