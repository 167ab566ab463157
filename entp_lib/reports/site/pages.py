"""The site's pages: start, papers, gallery, notebooks, and the ledger as a table that sorts, filters and links."""

import base64
import hashlib
import json
import re
import struct
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from entp_lib import paths
from entp_lib.experiments import claims
from entp_lib.files import read_text
from entp_lib.paths import number_of
from entp_lib.reports.findings import VERDICT_WORDS, papers, scale, tally, title_of
from entp_lib.reports.ledger import papers_claims
from entp_lib.reports.readme import sorted_notebooks
from entp_lib.reports.site.links import anchor, page_of, relative, relinked, with_anchors

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
SHORT = tuple(head for head in HEADS if head != "records")
FILTERS = ("paper", "verdict", "tier", "kind")
JOURNAL = "docs/journal/README"  # its index


def start(known: set[str], plays: dict[str, str]) -> str:
    """The first page: README without what only GitHub needs, and what there is to play with."""
    text = read_text(paths.root() / "README.md")
    before, _, rest = text.partition("<!-- elsewhere:begin")
    text = before + rest.partition("<!-- elsewhere:end -->")[2]
    text = text.replace("docs/pictures/attention.svg", "_static/attention.svg")
    text = relinked(text, "README.md", "index.html", known)
    cards = "".join(f'<li><a href="play/{name}.html">{escape(title)}</a></li>' for name, title in plays.items())
    play = f"## Things to play with\n\n<ul>{cards}</ul>\n\n"
    return text.replace("## Two commands", play + "## Two commands") + toctrees(known, plays)


def toctrees(known: set[str], plays: dict[str, str]) -> str:
    """The table of contents at the side."""
    docs = sorted(path.removesuffix(".md") for path in known if path.startswith("docs/") and path != "docs/findings.md")
    first = [name for name in ("docs/starting", "CONTRIBUTING", "docs/library") if name in (*docs, "CONTRIBUTING")]
    journal = [name for name in docs if name.startswith("docs/journal/") and name != JOURNAL]
    others = [name for name in docs if name not in (*first, JOURNAL, *journal)]
    groups = {
        "Found": ["findings", "gallery", *(f"papers/{name}" for name in papers()), *others, JOURNAL],
        "Play": [f"play/{name}" for name in plays],
        "Notebooks": [path.removesuffix(".ipynb") for path in sorted(known) if path.endswith(".ipynb")],
        "Begin": [*first, "api/index"],
        "Journal": journal,
    }
    parts = [
        f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {c}\n\n" + "\n".join(g) + "\n```\n"
        for c, g in groups.items()
    ]
    return "\n" + "\n".join(parts)


def paper(name: str, table: pd.DataFrame, known: set[str]) -> str:
    """A paper's page: its notebooks, its claims, and where its published numbers lie."""
    page, ids = f"papers/{name}.html", papers()[name]
    rows = table[table["id"].isin(ids)]
    judged = papers_claims(rows)
    counts = judged["verdict"].value_counts()
    verdicts = ", ".join(f"{counts[v]} {v}" for v in claims.VERDICTS if v in counts)
    here = [p.stem for p in sorted_notebooks() if p.stem in set(rows["notebook"])]
    links = [f'<li><a href="../notebooks/{stem}.html">{escape(title_of_notebook(stem))}</a></li>' for stem in here]
    published = sorted(p.name for p in (paths.reference() / name).glob("*.csv"))
    published = ", ".join(f"`{name}`" for name in published)
    shown = [row_of(*pair, known, page) for pair in paired(rows)]
    return "\n".join(
        [
            f"# {title_of(name)}\n",
            f"{len(judged)} claims: {verdicts}.\n",
            f"## Notebooks\n\n<ul>{''.join(links)}</ul>\n" if links else "No notebook judges them yet.\n",
            "## Claims and questions\n",
            html_table(shown, "claims", SHORT),
            f"\nPublished numbers, as `results/reference/{name}/` has them: {published}.\n",
        ]
    )


def title_of_notebook(stem: str) -> str:
    """A notebook's title, from its first heading."""
    import nbformat

    cells = nbformat.read(paths.notebooks() / f"{stem}.ipynb", as_version=4).cells
    return cells[0].source.splitlines()[0].removeprefix("# ")


def gallery() -> str:
    """Every finished figure with its alt text and what it rests on; each leads to its large drawing."""
    from entp_lib.experiments import png_files

    parts = [
        "# Gallery\n",
        "Every figure, drawn from the records that stand below it. Click one for the large drawing.\n",
    ]
    last = ""
    for path, about in png_files.gallery():
        notebook = next((p.stem for p in sorted_notebooks() if number_of(p.stem) == number_of(path.stem)), None)
        if notebook and notebook != last:
            parts.append(f"## {title_of_notebook(notebook)}\n")
            parts.append(f'<a href="notebooks/{notebook}.html">To the notebook</a>\n')
            last = notebook
        alt, _, rests = about.partition(" [")
        rests = rests.rstrip("]").split("; commit")[0]
        image = f'<img class="figure" src="figures/{path.name}" alt="{escape(alt)}" loading="lazy">'
        caption = f"<figcaption>{escape(alt)} ({rests})</figcaption>"
        parts.append(f'<figure><a href="figures/{path.stem}.svg">{image}</a>{caption}</figure>\n')
    return "\n".join(parts)


def findings_page(table: pd.DataFrame, known: set[str]) -> str:
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
    """Data of the interval plot: the measured claims of the papers."""
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
        return f"{escape(number_of(row['notebook']))}, not written yet"
    fragment = "" if pd.isna(row["section"]) else "#" + anchor(row["section"])
    words = number_of(row["notebook"]) + ("" if pd.isna(row["section"]) else f" · {row['section']}")
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


PLAIN_ALT = "Picture of this cell's output; its numbers stand in the text and tables around it."
REGION = '<div class="wide" tabindex="0" role="region" aria-label="{label}">{html}</div>'


def notebook_page(
    notebook: dict[str, Any], name: str, alts: dict[str, str], pictures: Path, known: set[str]
) -> dict[str, Any]:
    """The notebook ``name`` as JSON for Sphinx; its pictures go to the folder ``pictures`` (``_static/nb``).

    ``alts``: the alt text of every figure by its name. ``known``: the files that the site has pages of.
    """
    source, html = f"notebooks/{name}.ipynb", f"notebooks/{name}.html"
    cells = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cells.append(cell | {"source": with_anchors(relinked(text, source, html, known))})
            continue
        if cell["cell_type"] != "code" or not text.strip():
            continue
        tags = cell["metadata"].get("tags", [])
        fold = [] if "parameters" in tags else ["hide-input"]
        saved = re.findall(r'save_figure\(\s*\w+,\s*"(\w+)"', text)
        outputs = [shown(output, saved, alts, pictures) for output in cell["outputs"]]
        outputs = [output for output in outputs if output is not None]
        cells.append(cell | {"metadata": {"tags": [*tags, *fold]}, "outputs": outputs})
    return notebook | {"cells": cells}


NOTEBOOK = re.compile(r'href="(\d\d_\w+)\.ipynb')  # a table's link from one notebook to another


def shown(output: dict[str, Any], saved: list[str], alts: dict[str, str], pictures: Path) -> dict[str, Any] | None:
    """One output as the site has it: pictures and tables as HTML of its own, text as it is."""
    data = output.get("data")
    if data is None:
        return output
    if "image/png" in data:
        alt = output.get("metadata", {}).get("image/png", {}).get("alt") or (alts.get(saved[0], "") if saved else "")
        return as_html(picture("".join(data["image/png"]), alt.split(" [")[0] or PLAIN_ALT, saved, pictures))
    if "image/gif" in data:
        return as_html(picture("".join(data["image/gif"]), PLAIN_ALT, saved, pictures, "gif"))
    if "text/html" in data:
        html = NOTEBOOK.sub(r'href="\1.html', "".join(data["text/html"]))
        return as_html(REGION.format(label="Table", html=html) if "<table" in html else html)
    return output


def as_html(html: str) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": html}}


def picture(encoded: str, alt: str, saved: list[str], folder: Path, kind: str = "png") -> str:
    """An <img> of a stored picture, written once to ``folder`` by its content; a figure links to its large drawing."""
    content = base64.b64decode(encoded)
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    size = ""
    if kind == "png":
        width, height = struct.unpack(">II", content[16:24])
        size = f' width="{width}" height="{height}"'
    image = f'<img class="figure" src="../_static/nb/{name}" alt="{escape(alt)}"{size} loading="lazy">'
    if saved and (paths.figures() / f"{saved[0]}.svg").exists():
        return f'<a href="../figures/{saved[0]}.svg">{image}</a>'
    return image
