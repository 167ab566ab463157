"""Write the pages that are generated from the ledger: README's part, findings, ledger, costs, deviations."""

import re
from pathlib import Path

import pandas as pd

from entp_lab import claims, coverage, ledger, paths
from entp_lab.answers import (
    PAPER_SCALE,
    claims_in_front,
    how_sure,
    leads,
    paper_of_claims,
    table_of_claims,
    tally,
    tally_sentence,
)
from entp_lab.budgets import training_operations
from entp_lab.configs import BEST_FIRST, ON_CPU, RunConfig
from entp_lab.experiment import of_experiment
from entp_lab.frames import spent
from entp_lab.notebooks import OVERVIEW, notebook_paths, read_notebook
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lab.tables import markdown_table, read_table
from entp_lab.texts import read_text
from entp_lib.files import write_atomically
from entp_lib.validation import require

CORE_RATE = 2.1e11  # multiplications and additions per second, as a core with AMX reached in bf16
GPU_RATE = 1e14  # the same for a GPU, assumed: a tenth of an H200's bf16 peak
HERE = Path(__file__).parent
WRITTEN = "<!-- The whole page is written by python -m entp_lab readme. -->"


# README and findings.


def front(table: pd.DataFrame) -> str:
    """Return README's part as Markdown: the table of claims, the tally, and what the comparisons rest on."""
    return (
        f"{claims_in_front(table)}\n\n**The tally.** {tally_sentence(table)} **How sure?** {how_sure(table)} "
        "Filled dots in the picture mark leads that stand after a correction for this number (Holm). "
        "Verdicts go by each row's own interval, without it."
    )


def answer_in_short() -> str:
    """Return the overview's answer and its picture, which its first cell gives and README repeats."""
    overview = next(path for path in notebook_paths() if path.name.startswith(OVERVIEW))
    _, answer, text = read_notebook(overview)["cells"][0]["source"].partition("**The answer:**")
    require(answer, f"{paths.relative(overview)}: its first cell lacks **The answer:**")
    return f"**In short:**{text}".replace("](../", "](")


def findings_page(table: pd.DataFrame) -> str:
    """Return ``docs/findings.md``: the papers' claims, our own questions, the tally, and what could not tell."""
    answered = table_of_claims(table)
    shown = pd.DataFrame(
        {
            "statement": answered["says"],
            "here": answered["here"],
            "numbers (+: ENTP, or writing, is better)": answered["numbers"],
            "how sure": answered["sure"],
            "where": answered["claim"].map(claims.link_to),
        }
    )
    asked = shown[~answered["front"]].rename(columns={"statement": "question"})
    untold = table[table["part"] == "could not tell"]
    reasons = pd.DataFrame(
        {
            "statement": untold["statement"],
            "why it could not tell": untold["why"],
            "where": untold["id"].map(claims.link_to),
        }
    )
    return f"""# Findings

{WRITTEN}

## What the papers say

{markdown_table(shown[answered["front"]])}

{tally_sentence(table)}

## What else we asked

{markdown_table(asked)}

{how_sure(table)} {leads(table)}

## The tally, paper by paper

{markdown_table(tally(table))}

## Tried, could not tell

Too little was learned, or the task was too easy, for a difference to show. *The shortcut* is \
a rule that looks at no pair of numbers.

{markdown_table(reasons)}

Every row with its interval, margin and caveats stands in [the ledger](ledger.md), in `results/claims.csv` and in \
`results/questions.csv`. [Deviations](deviations.md) says what was done otherwise than in the papers and in our own \
designs.

## Verdicts

{read_text(HERE / "verdicts.md")}"""


def ledger_page(table: pd.DataFrame) -> str:
    """Return ``docs/ledger.md``: the rows that matter, then the annex."""
    columns = ["statement", "ours", "95 % interval", "margin", "tier", "seeds"]
    parts = {}
    for name in ("main", "annex", "could not tell"):
        rows = table[table["part"] == name]
        shown = claims.readable(rows, columns).rename(columns={"tier": "scale"})
        parts[name] = markdown_table(shown.assign(where=rows["id"].map(claims.link_to).tolist()))
    return f"""# The ledger

{WRITTEN}

What each row says, our value with its 95 % interval over pairs of runs, and the verdict that follows by rule \
([findings](findings.md) says what each means, and why a row could not tell).

## The rows that matter

{parts["main"]}

## Annex

{parts["annex"]}

## Could not tell

{parts["could not tell"]}
"""


# What runs cost.


def costs_page(store: Store) -> str:
    """Return ``docs/costs.md``, from the records of a store."""
    return f"""# Costs

{WRITTEN}

## Measured

What the records of each experiment took at a tier that is whole, all runs added, from their provenance: processor \
time on CPUs, or by the clock where an older record has that alone. Cores were often shared with other work, which \
lengthens both, so that times are upper bounds.

{markdown_table(measured_costs(store))}

## Extrapolated

Tiers without records: multiply-adds of all their training steps, counted. Core-hours are at 0.21e12 operations a \
second, two a multiply-add, which a core with AMX reached in bf16 at the paper's size; one without, or small shapes, \
take longer. GPU-hours are at an assumed 1e14, a tenth of an H200's peak. Evaluation is left out, and nothing in this \
table was measured on a GPU. Before long runs start, the time that is printed is that of steps of their own shape, \
tried on the machine itself.

{markdown_table(extrapolated_costs(store))}
"""


def measured_costs(store: Store) -> pd.DataFrame:
    """Return processor time, memory and machines of each experiment's records, by tier."""
    rows = []
    for experiment in EXPERIMENTS.values():
        for tier in reversed(BEST_FIRST):
            records = of_experiment(experiment, experiment.stored(store, tier))
            if records:
                peak = max(r.provenance["peak_memory_bytes"] for r in records)
                rows.append(
                    {
                        "notebook": experiment.notebook,
                        "experiment": experiment.name,
                        "tier": tier,
                        "runs": len(records),
                        "core-minutes"
                        if tier in ON_CPU
                        else "minutes": f"{sum(map(spent, records)) / 60:.1f}",
                        "peak memory": f"{peak / 2**20:.0f} MiB",
                        "machine": ", ".join(sorted({r.provenance["device"] for r in records})),
                    }
                )
    return pd.DataFrame(rows).fillna("")


def extrapolated_costs(store: Store) -> pd.DataFrame:
    """Return a row per tier of training runs without records: the cost of one random seed, times their number."""
    rows = []
    for experiment in EXPERIMENTS.values():
        for tier in PAPER_SCALE:
            once = experiment.configs(tier, 1)
            every = experiment.configs(tier)
            runs = [config for config in once if isinstance(config, RunConfig)]
            if not runs or experiment.stored(store, tier):
                continue
            multiply_adds = len(every) / len(once) * sum(map(training_operations, runs))
            rows.append(
                {
                    "experiment": experiment.name,
                    "tier": tier,
                    "runs": len(every),
                    "multiply-adds": f"{multiply_adds:.1e}",
                    "core-hours": f"{2 * multiply_adds / CORE_RATE / 3600:,.0f}",
                    "GPU-hours": f"{2 * multiply_adds / GPU_RATE / 3600:.2g}",
                }
            )
    return pd.DataFrame(rows)


# What was done differently from the papers.


def deviations_page(table: pd.DataFrame) -> str:
    """Return ``docs/deviations.md``: a table from the ledger, then the text of ``entp_lab/deviations.md``."""
    return f"""# Deviations

What this collection does otherwise than the papers, where it left its own designs, and which records were deleted. The
first table is written by `python -m entp_lab readme` from the ledger, the others are typed in
`entp_lab/deviations.md`.

## From the papers

Each row compares a setting of ours with the paper's, which stands in brackets; names are those of the configurations.
Where a paper is silent, the brackets hold the value of its authors' code; for learning in context they hold the
schedule of Garg et al. (bf16 is ours). Reasoning written out is not trained in the paper; the brackets hold our plan
for its size.
*Since* is the day on which the first of the runs began.

{markdown_table(deviations_from_papers(table))}

{read_text(HERE / "deviations.md")}"""


def deviations_from_papers(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per setting of claims and main questions that differs from a paper's: difference, reason, day.

    ``results/reference/deviations.csv`` says in words what an experiment is and why its setting is ours. Raises
    ConfigError for an experiment without a reason.
    """
    path = paths.reference() / "deviations.csv"
    columns = ("experiment", "what", "why")
    reasons = read_table(path, columns, needed=columns).set_index("experiment")
    asked = (table["kind"] == "empirical") | (table["part"] == "main")
    tried = table[asked & (table["differs"] != "")]
    # the ENTP paper first
    tried = tried.iloc[(tried["id"].map(paper_of_claims()) != "entp").argsort(kind="stable")]
    experiments = tried["records"].str.partition("/")[0].rename("experiment")
    unknown = sorted(set(experiments) - set(reasons.index))
    require(not unknown, f"{paths.relative(path)} has no line on {', '.join(unknown)}")
    rows = []
    for (experiment, differs), part in tried.groupby([experiments, "differs"], sort=False):
        started = [record.provenance["started"] for record in claims.records_behind(part)]
        rows.append(
            {
                "experiment": reasons.loc[experiment, "what"],
                "the paper's": "; ".join(dict.fromkeys(part["source"])),
                "ours (the paper's)": differs,
                "why": reasons.loc[experiment, "why"],
                "since": min(started)[:10],
                "where": ", ".join(dict.fromkeys(part["id"].map(claims.link_to))),
            }
        )
    return pd.DataFrame(rows)


# Files that are generated.


def generated(table: pd.DataFrame | None = None) -> dict[Path, str]:
    """Return README.md and the generated pages of ``docs/``, by path; ``table``: the ledger, if it is known already."""
    store = Store(read_only=True)
    table = ledger.compute(store) if table is None else table
    readme = read_text(paths.repository() / "README.md")
    links = [f"[{p.stem.replace('_', ' ')}](notebooks/{p.name})" for p in sorted(notebook_paths())]
    parts = {
        "answer": answer_in_short(),
        "findings": front(table),
        "notebooks": " · ".join(links) + ".",
    }
    for name, part in parts.items():
        marked = rf"(?s)(<!-- {name}:begin[^>]*-->\n).*?(\n<!-- {name}:end -->)"
        escaped = part.replace("\\", r"\\")
        readme, found = re.subn(marked, rf"\g<1>{escaped}\g<2>", readme)
        require(found == 1, f"README.md: write the marks {name}:begin and {name}:end once each")
    pages = {
        "README.md": readme,
        "docs/findings.md": findings_page(table),
        "docs/costs.md": costs_page(store),
        "docs/ledger.md": ledger_page(table),
        "docs/deviations.md": deviations_page(table),
        "docs/coverage.md": coverage.page(table),
    }
    return {paths.root() / name: text for name, text in pages.items()}


def outdated() -> list[str]:
    """Return the generated files that are missing or differ from what the records say now, README first."""
    found = generated().items()
    return [
        paths.relative(path) for path, text in found if not path.exists() or read_text(path) != text
    ]


def write(table: pd.DataFrame | None = None) -> None:
    """Bring README.md and the generated pages up to date with the records, or with their ledger ``table``."""
    for path, text in generated(table).items():
        write_atomically(path, text.encode())
