"""The site's pages that are no file of the repository: start, papers, gallery, and the table of contents."""

from html import escape

import pandas as pd

from entp_lib import paths
from entp_lib.experiments import claims
from entp_lib.files import read_text
from entp_lib.reports.findings_page import papers, title_of
from entp_lib.reports.ledger import papers_claims
from entp_lib.reports.readme import sorted_notebooks
from entp_lib.reports.site import ledger_page
from entp_lib.reports.site.links import relinked

SHORT = tuple(head for head in ledger_page.HEADS if head != "records")

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
    shown = [ledger_page.row_of(*pair, known, page) for pair in ledger_page.paired(rows)]
    return "\n".join(
        [
            f"# {title_of(name)}\n",
            f"{len(judged)} claims: {verdicts}.\n",
            f"## Notebooks\n\n<ul>{''.join(links)}</ul>\n" if links else "No notebook judges them yet.\n",
            "## Claims and questions\n",
            ledger_page.html_table(shown, "claims", SHORT),
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
        notebook = next((p.stem for p in sorted_notebooks() if p.stem[:2] == path.stem[:2]), None)
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
