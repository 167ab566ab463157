"""The generated parts of README.md: between markers, from the ledger and the records."""

import re

import pandas as pd

from entp_lib import paths
from entp_lib.collection import claims
from entp_lib.config import BEST_FIRST
from entp_lib.files import read_text, write_atomically
from entp_lib.report import costs as extrapolation
from entp_lib.report.ledger import ledger, papers_claims, questions
from entp_lib.runs.records import Store
from entp_lib.strict import ConfigError

OURS = ["ours", "95 % interval", "tier", "seeds"]
ON_CPU = ("quick", "overnight")


def claims_table(store: Store) -> str:
    """Every claim of a paper that was attempted, as Markdown, and how many were not."""
    table = papers_claims(ledger(store))
    attempted = table[table["verdict"] != "not attempted"]
    left = len(table) - len(attempted)
    return with_links(attempted, ["source", "statement", "paper", *OURS]) + f"\n\nNot attempted yet: {left} claims."


def questions_table(store: Store) -> str:
    """Our own questions with their answers, as Markdown, and how many intervals chance alone would take from zero."""
    table = ledger(store)
    asked = questions(table)
    asked = asked[asked["verdict"] != "not attempted"]
    return with_links(asked, ["source", "statement", *OURS]) + f"\n\nBoth tables: {claims.multiplicity(table)}."


def with_links(rows: pd.DataFrame, columns: list[str]) -> str:
    """Rows of the ledger as a Markdown table that says where each is looked at."""
    shown = claims.readable(rows, columns).reset_index()
    shown.insert(len(shown.columns), "where", [claims.link(claim) for claim in shown["id"]])
    return markdown(shown)


def cost_table(store: Store) -> str:
    """What each experiment's records cost, by tier, as Markdown."""
    from entp_lib.papers import EXPERIMENTS

    rows = []
    for experiment in EXPERIMENTS.values():
        for tier in reversed(BEST_FIRST):
            records = experiment.stored(store, tier) or []
            if records:
                seconds = sum(r.provenance["wall_seconds"] for r in records)
                peak = max(r.provenance["peak_memory_bytes"] for r in records)
                rows.append(
                    {
                        "notebook": experiment.notebook,
                        "experiment": experiment.name,
                        "tier": tier,
                        "runs": len(records),
                        "core-minutes" if tier in ON_CPU else "minutes": f"{seconds / 60:.1f}",
                        "peak memory": f"{peak / 2**20:.0f} MiB",
                        "machine": ", ".join(sorted({r.provenance["device"] for r in records})),
                    }
                )
    return markdown(pd.DataFrame(rows).fillna(""))


def extrapolated_table(store: Store) -> str:
    """What tiers without records would cost, as Markdown."""
    return markdown(extrapolation.costs(store))


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table."""
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PARTS = {
    "claims": claims_table,
    "questions": questions_table,
    "cost": cost_table,
    "extrapolated": extrapolated_table,
}


def render(text: str, store: Store) -> str:
    """``text`` with the generated parts replaced. ConfigError where a marker is missing."""
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(\n<!-- {name}:end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ConfigError(f"README.md lacks the markers <!-- {name}:begin --> and <!-- {name}:end -->")
        part = make(store)
        text = pattern.sub(lambda m, part=part: m[1] + part + m[2], text)
    return text


def is_current() -> bool:
    """Whether README.md holds what the records say now."""
    text = read_text(paths.readme())
    return text == render(text, Store(read_only=True))


def write() -> None:
    """Bring README.md up to date."""
    path = paths.readme()
    write_atomically(path, render(read_text(path), Store(read_only=True)).encode())
