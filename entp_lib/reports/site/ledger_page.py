"""The findings page: the interval plot, and the ledger as a table that sorts, filters and leads to what it rests on."""

import json
from html import escape

import pandas as pd

from entp_lib.experiments import claims
from entp_lib.reports.findings import VERDICT_WORDS, scale, tally
from entp_lib.reports.findings_page import papers, title_of
from entp_lib.reports.site.links import anchor, page_of, relative

HEADS = (
    "id",
    "source",
    "statement",
    "paper",
    "ours",
    "95 % interval",
    "margin",
    "tier",
    "seeds",
    "verdict",
    "where",
    "records",
)
FILTERS = ("paper", "verdict", "tier", "kind")


def page(table: pd.DataFrame, known: set[str]) -> str:
    """The page as Markdown with HTML, for a ledger; ``known``: the files that the site has pages of."""
    rows = [row_of(*pair, known, "findings.html") for pair in paired(table)]
    data = json.dumps(points(table), ensure_ascii=False)
    words = "".join(f"<dt>{escape(v)}</dt><dd>{escape(w)}</dd>" for v, w in VERDICT_WORDS.items())
    return "\n".join(
        [
            "# Findings\n",
            f"{tally(table)} {scale(table)} All tables: {claims.multiplicity(table)}.\n",
            "## Our interval and the paper's value\n",
            "Each row is a measured difference: our mean and 95 % interval over seeds, coloured by verdict, and the "
            "paper's value as a cross where it prints one. Point at a row, or move through the rows with the arrow "
            "keys, to read it. Only comparisons that the papers claim are shown.\n",
            '<div id="intervals" class="widget"></div>\n',
            f'<script type="application/json" id="intervals-data">{data}</script>\n',
            "## All claims and questions\n",
            "Rows of theory have neither seeds nor intervals: a statement is tried, not averaged. Below its *margin* a "
            "difference counts as none. Click a column's head to sort by it.\n",
            controls(rows),
            html_table(rows, "ledger"),
            f"\n## What the verdicts say\n\n<dl class='verdicts'>{words}</dl>\n",
            '<script src="_static/ledger.js" defer></script>\n',
        ]
    )


def paired(table: pd.DataFrame) -> list[tuple[pd.Series, pd.Series]]:
    """Each row of a ledger with itself as people read it."""
    shown = claims.readable(table)
    return [(row, shown.loc[row["id"]]) for _, row in table.iterrows()]


def points(table: pd.DataFrame) -> list[dict]:
    """What the interval plot draws: the measured claims of the papers."""
    from entp_lib.experiments.ledger_figures import VERDICT_COLOURS

    measured = table[(table["kind"] == "empirical") & table["our_value"].notna()]

    def number(value: float) -> float | None:
        return None if pd.isna(value) else round(float(value), 5)

    return [
        {
            "id": r.id,
            "says": r.statement,
            "unit": "" if pd.isna(r.unit) else r.unit,
            "paper": number(r.paper_value),
            "ours": number(r.our_value),
            "low": number(r.low),
            "high": number(r.high),
            "tier": r.tier,
            "seeds": int(r.seeds),
            "verdict": r.verdict,
            "colour": VERDICT_COLOURS.get(r.verdict, "#7F7F7F"),
        }
        for r in measured.itertuples()
    ]


def row_of(row: pd.Series, shown: pd.Series, known: set[str], page: str) -> dict[str, str]:
    """A row's cells as HTML by head, and what it is filtered by, for the page ``page``."""
    paper = next((title_of(name) for name, ids in papers().items() if row["id"] in ids), "")
    theory = row["kind"] == "theory"
    plain = ("source", "statement", "paper", "ours", "95 % interval", "margin", "tier")
    cells = {name: escape(str(shown[name])) for name in plain}
    seeds = "" if row["verdict"] == "not attempted" else ("theory" if theory else str(row["seeds"]))
    names = str(row["records"]).split()
    return cells | {
        "id": escape(row["id"]),
        "seeds": seeds,
        "verdict": escape(str(shown["verdict"])),
        "where": where(row["id"], known, page),
        "records": record_links(names, page),
        "filter": {"paper": paper, "verdict": row["verdict"], "tier": row["tier"] or "", "kind": row["kind"]},
    }


def where(claim: str, known: set[str], page: str) -> str:
    """The notebook and section that look at a claim, as a link where the site has the notebook."""
    row = claims.reference_claims().set_index("id").loc[claim]
    path = f"notebooks/{row['notebook']}.ipynb"
    if path not in known:
        return f"{escape(row['notebook'][:2])}, not written yet"
    fragment = "" if pd.isna(row["section"]) else "#" + anchor(row["section"])
    words = row["notebook"][:2] + ("" if pd.isna(row["section"]) else f" · {row['section']}")
    return f'<a href="{escape(relative(page_of(path), page) + fragment)}">{escape(words)}</a>'


def record_links(names: list[str], page: str) -> str:
    """The records behind a row, folded away where there are many."""
    links = [f'<a href="{relative(f"records/{name}.json", page)}">{escape(name)}</a>' for name in names]
    if not links:
        return ""
    return f"<details><summary>{len(links)}</summary>{'<br>'.join(links)}</details>"


def controls(rows: list[dict]) -> str:
    """A drop-down for everything a row is filtered by, and a box for words."""
    parts = []
    for name in FILTERS:
        values = sorted({row["filter"][name] for row in rows} - {""})
        options = "".join(f"<option>{escape(value)}</option>" for value in values)
        parts.append(
            f'<label>{name} <select data-filter="{name}"><option value="">all</option>{options}</select></label>'
        )
    parts.append('<label>words <input type="search" data-words placeholder="in any column"></label>')
    return f'<div class="filters" id="ledger-filters">{"".join(parts)}<output id="ledger-count"></output></div>\n'


def html_table(rows: list[dict], name: str, heads: tuple[str, ...] = HEADS) -> str:
    """Rows as a table in a region that scrolls sideways."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = []
    for row in rows:
        data = " ".join(f'data-{key}="{escape(value)}"' for key, value in row["filter"].items())
        cells = "".join(
            f'<td class="c-{h.split()[0].strip("0123456789 %") or "interval"}">{row[h]}</td>' for h in heads
        )
        body.append(f"<tr {data}>{cells}</tr>")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="The ledger"><table class="ledger" id="{name}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>\n"
    )
