"""Table of the overview: all notebooks with what each asks.

It is HTML of the plainest kind, without style sheets or scripts, which JupyterLab and code hosts would leave out; links
are relative to ``notebooks/``.
"""

import html
import re
from pathlib import Path

from entp_lib.reports.options import check_sound, notebook_paths

LEFT = 'style="text-align:left"'  # Jupyter would put text to the right


class Html(str):
    """Text that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{self.count('<tr>')} rows"


def title_of(notebook: str) -> str:
    """The first heading of a notebook, such as "03 · Count3"; its name where there is none."""
    found = {path.stem: path for path in notebook_paths()}.get(notebook)
    heads = [line.lstrip("# ") for text, _ in written_in(found) for line in text.splitlines() if line.startswith("# ")]
    return heads[0] if heads else notebook


def asked_by(notebook: Path) -> str:
    """Question of a notebook: ``asks`` in its first cell's metadata, else the first sentence below its title."""
    texts = written_in(notebook)
    if texts and texts[0][1].get("asks"):
        return texts[0][1]["asks"]
    lines = [line for text, _ in texts for line in text.splitlines() if line.strip() and line[0] not in "#!|-"]
    sentence = (
        re.split(r"(?<=[.;?!])\s", re.sub(r"^\*\*[^*]*:\*\*|[*`$]", "", lines[0]), maxsplit=1)[0] if lines else ""
    )
    return sentence.strip().rstrip(".;")


def written_in(notebook: Path | None) -> list[tuple[str, dict]]:
    """The text cells of a notebook with their metadata; none where there is no notebook."""
    import nbformat

    if notebook is None:
        return []
    check_sound(notebook)
    cells = nbformat.read(notebook, as_version=4).cells
    return [(cell.source, cell.metadata) for cell in cells if cell.cell_type == "markdown"]


def notebooks_html(without: str = "00_") -> Html:
    """Every notebook in the order of the numbers: its title, which leads to it, and what it asks."""
    lines = ["<table>", f"<tr><th {LEFT}>notebook</th><th {LEFT}>asks</th></tr>"]
    for path in sorted(p for p in notebook_paths() if not p.stem.startswith(without)):
        linked = f'<a href="{path.name}">{html.escape(title_of(path.stem))}</a>'
        lines.append(f"<tr><td {LEFT}>{linked}</td><td {LEFT}>{html.escape(asked_by(path))}</td></tr>")
    return Html("\n".join([*lines, "</table>"]))
