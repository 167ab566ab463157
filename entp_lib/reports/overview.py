"""Tables of the overview: the ledger by notebook, coloured and linked, every figure in one grid, all notebooks.

It is HTML of the plainest kind, without style sheets or scripts, which JupyterLab and code hosts would leave out: a
verdict's colour is a dot before its name, links are relative to ``notebooks/``.
"""

import base64
import html
import io
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from entp_lib import paths
from entp_lib.experiments import claims, png_files
from entp_lib.reports.findings import VERDICT_WORDS
from entp_lib.reports.options import check_sound, notebook_paths

# The colour of each verdict; those of comparisons are the figures' (``entp_lib.experiments.ledger_figures``).
COLOURS = {
    "reproduced": "#009E73",
    "same direction": "#56B4E9",
    "not reproduced": "#D55E00",
    "inconclusive": "#7F7F7F",
    "uninformative": "#C8C8C8",
    "verified": "#009E73",
    "verified with correction": "#E69F00",
    "refuted": "#D55E00",
    "unproved": "#7F7F7F",
    "not attempted": "#C8C8C8",
}
COLUMNS = ("id", "source", "statement", "paper", "ours", "95 % interval", "margin", "tier", "seeds", "verdict")
LEFT = 'style="text-align:left"'  # Jupyter would put text to the right
GRID, WIDTH = 4, 190  # pictures in a row, pixels of each


class Html(str):
    """Text that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{self.count('<tr>')} rows"


def ledger_html(table: pd.DataFrame) -> Html:
    """The rows of a ledger under the title of their notebook, each with its verdict's sign, linked to its section."""
    shown = claims.readable(table, ["source", "statement", "paper", "ours", "95 % interval", "margin", "tier", "seeds"])
    known = claims.reference_claims().set_index("id")
    lines = ["<table>", row_of([*COLUMNS, "where"], "th")]
    rows = table.assign(place=table["notebook"]).sort_values("place", kind="stable")
    for notebook, part in rows.groupby("place", sort=False):
        counts = part["verdict"].value_counts(sort=False)
        said = " · ".join(f"{count} {dot(verdict)} {html.escape(verdict)}" for verdict, count in counts.items())
        lines.append(
            f'<tr><td colspan="{len(COLUMNS) + 1}" {LEFT}><b>{html.escape(title_of(notebook))}</b> ({said})</td></tr>'
        )
        for claim in part.itertuples():
            values = dict(shown.loc[claim.id])
            values["id"] = claim.id
            cells = [*(values[column] for column in COLUMNS)]
            lines.append(row_of(cells, "td", dot(claim.verdict), link(claim, known)))
    return Html("\n".join([*lines, "</table>"]))


def dot(verdict: str) -> str:
    """A dot in the colour of a verdict; answers to our own questions have words of their own, and one colour."""
    other = COLOURS["inconclusive" if verdict == claims.OPEN else "same direction"]
    return f'<font color="{COLOURS.get(verdict, other)}">●</font>'


def legend() -> Html:
    """Legend of the verdicts in their colours, the margin's rule among them."""
    margin = "where the whole interval lies within it, no difference counts; stated before the runs, in its unit"
    words = {verdict: words for verdict, words in VERDICT_WORDS.items() if verdict != "not attempted"}
    named = {f"{dot(verdict)} {verdict}": meaning for verdict, meaning in words.items()} | {"± margin": margin}
    rows = [f"<tr><td {LEFT}>{name}</td><td {LEFT}>{meaning}</td></tr>" for name, meaning in named.items()]
    return Html("\n".join(["<table>", *rows, "</table>"]))


def row_of(values: Sequence[object], cell: str, mark: str = "", where: str = "") -> str:
    """A line of a table. ``mark``, before the last value, and ``where``, behind it, are HTML already."""
    texts = [html.escape("" if pd.isna(value) else str(value)) for value in values]
    texts[-1] = f"{mark} {texts[-1]}" if mark else texts[-1]
    texts += [where] if where else []
    return "<tr>" + "".join(f"<{cell} {LEFT}>{text}</{cell}>" for text in texts) + "</tr>"


def link(claim, known: pd.DataFrame) -> str:
    """Link from a notebook to the section of another that examines a claim; plain where there is no notebook yet."""
    section = known.loc[claim.id, "section"]
    if not (paths.notebooks() / f"{claim.notebook}.ipynb").exists():
        return html.escape(claim.notebook)
    anchor = "" if pd.isna(section) else "#" + section.replace(" ", "-")
    words = "" if pd.isna(section) else f" · {section}"
    there = html.escape(f"{claim.notebook}.ipynb{anchor}")
    return f'<a href="{there}">{claim.notebook[:2]}</a>{html.escape(words)}'


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
    lines = ["<table>", row_of(["notebook", "asks"], "th")]
    for path in sorted(p for p in notebook_paths() if not p.stem.startswith(without)):
        linked = f'<a href="{path.name}">{html.escape(title_of(path.stem))}</a>'
        lines.append(f"<tr><td {LEFT}>{linked}</td><td {LEFT}>{html.escape(asked_by(path))}</td></tr>")
    return Html("\n".join([*lines, "</table>"]))


def gallery_html(without: str = "00_") -> Html:
    """Every finished figure, small and in full colour, in one grid; each with its text and a link to its notebook.

    ``without``: figures whose names begin so are left out.
    """
    found = [(path, about) for path, about in png_files.gallery() if not path.stem.startswith(without)]
    stems = {path.name[:2]: path.stem for path in notebook_paths()}
    cells = [picture_cell(path, about, stems.get(path.name[:2], "")) for path, about in found]
    rows = ["<tr>" + "".join(cells[i : i + GRID]) + "</tr>" for i in range(0, len(cells), GRID)]
    return Html("\n".join(["<table>", *rows, "</table>"]))


def picture_cell(path: Path, about: str, notebook: str) -> str:
    """A cell of the grid: the picture, a link to its notebook, what it shows and what it rests on."""
    alt, _, rests = about.partition(" [")
    data = base64.b64encode(small_picture(path)).decode()
    picture = f'<img src="data:image/webp;base64,{data}" width="{WIDTH}" alt="{html.escape(alt)}">'
    linked = f'<a href="{notebook}.ipynb">{picture}</a>' if notebook else picture
    return f'<td {LEFT} valign="top">{linked}<br>{path.stem}<br>{html.escape(rests.partition("; commit")[0])}</td>'


def small_picture(path: Path) -> bytes:
    """A finished PNG as a WebP ``WIDTH`` pixels wide: a few KiB in all its colours."""
    from PIL import Image

    with Image.open(path) as image:
        height = round(image.height * WIDTH / image.width)
        small = image.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, format="WEBP", quality=30, method=6)
    return buffer.getvalue()
