"""The page ``docs/deviations.md``: what was done otherwise than in the papers, and otherwise than we had designed.

The first part follows from the ledger's ``differs`` and the records; ``results/reference/deviations.csv`` says in words
what an experiment is and why its setting is ours. The other parts, ``deviations.md`` beside this file, are typed.
"""

from pathlib import Path

import pandas as pd

from entp_lab import claims, paths
from entp_lab.costs import markdown_table
from entp_lab.tables import read_table
from entp_lib.files import read_text
from entp_lib.validation import require

DESIGNS = Path(__file__).parent / "deviations.md"
HEAD = """# Deviations

What this collection does otherwise than the papers, where it left its own designs, and which records were deleted. The
first table is written by `python -m entp_lab readme` from the ledger, the other two are typed in
`entp_lab/deviations.md`.

## From the papers

Each row compares a setting of ours with the paper's, which stands in brackets; names are those of the configurations.
A setting that a paper does not state is left out. *Since* is the day on which the first of the runs began.

"""


def page(table: pd.DataFrame) -> str:
    """The page as Markdown, for a ledger."""
    return f"{HEAD}{markdown_table(from_papers(table))}\n\n{read_text(DESIGNS)}"


def from_papers(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting in which papers' empirical claims were tried: claims, difference, reason, first day.

    ConfigError for an experiment whose reason is missing.
    """
    path = paths.reference() / "deviations.csv"
    reasons = read_table(path, ["experiment", "what", "why"], needed=("experiment", "what", "why"))
    reasons = reasons.set_index("experiment")
    tried = table[(table["kind"] == "empirical") & (table["differs"] != "")]
    papers = tried["id"].map(claims.reference_claims().set_index("id")["paper"])
    tried = tried.iloc[(papers != "entp").argsort(kind="stable")]  # this project's own paper first
    experiments = tried["records"].str.partition("/")[0].rename("experiment")
    unknown = sorted(set(experiments) - set(reasons.index))
    require(not unknown, f"{paths.relative(path)} has no line on {', '.join(unknown)}")
    rows = []
    for (experiment, differs), part in tried.groupby([experiments, "differs"], sort=False):
        started = [record.provenance["started"] for record in claims.records_behind(part)]
        where = dict.fromkeys(claims.link(claim).replace("](<", "](<../") for claim in part["id"])
        rows.append(
            {
                "experiment": reasons.loc[experiment, "what"],
                "the paper's": "; ".join(dict.fromkeys(part["source"])),
                "ours (the paper's)": differs,
                "why": reasons.loc[experiment, "why"],
                "since": min(started)[:10],
                "where": ", ".join(where),
            }
        )
    return pd.DataFrame(rows)
