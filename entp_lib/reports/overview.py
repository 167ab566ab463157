"""Table of the overview: all notebooks with what each asks.

It is HTML of the plainest kind, without style sheets or scripts, which JupyterLab and code hosts would leave out; links
are relative to ``notebooks/``.
"""

import html
import re
from pathlib import Path

from entp_lib.reports.parameters import read_notebook, sorted_notebooks

LEFT = 'style="text-align:left"'  # Jupyter would put text to the right


class Html(str):
    """Text that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{self.count('<tr>')} rows"


def title_and_question(notebook: Path) -> tuple[str, str]:
    """First heading of a notebook and its question: ``asks`` of its first cell, else the first sentence of its text."""
    texts = [cell for cell in read_notebook(notebook) if cell["cell_type"] == "markdown"]
    lines = [line for cell in texts for line in cell["source"].splitlines() if line.strip()]
    title = next((line.lstrip("# ") for line in lines if line.startswith("# ")), notebook.stem)
    asks = texts[0]["metadata"].get("asks") if texts else None
    if not asks:
        words = re.sub(r"^\*\*[^*]*:\*\*|[*`$]", "", next((line for line in lines if line[0] not in "#!|-"), ""))
        asks = re.split(r"(?<=[.;?!])\s", words.strip(), maxsplit=1)[0].strip().rstrip(".;")
    return title, asks


def notebooks_html(without: str = "00_") -> Html:
    """Every notebook in the order of the numbers: its title, which leads to it, and what it asks."""
    lines = ["<table>", f"<tr><th {LEFT}>notebook</th><th {LEFT}>asks</th></tr>"]
    for path in (p for p in sorted_notebooks() if not p.stem.startswith(without)):
        title, asks = map(html.escape, title_and_question(path))
        lines.append(f'<tr><td {LEFT}><a href="{path.name}">{title}</a></td><td {LEFT}>{asks}</td></tr>')
    return Html("\n".join([*lines, "</table>"]))
