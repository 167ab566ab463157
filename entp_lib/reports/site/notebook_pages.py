"""A committed notebook as the site shows it: nothing is executed, pictures have alt text, code folds away."""

import base64
import hashlib
import re
import struct
from html import escape
from pathlib import Path
from typing import Any

from entp_lib import paths
from entp_lib.reports.site.links import relinked, with_anchors

PLAIN_ALT = "Picture of this cell's output; its numbers stand in the text and tables around it."
REGION = '<div class="wide" tabindex="0" role="region" aria-label="{label}">{html}</div>'


def page(notebook: dict[str, Any], name: str, alts: dict[str, str], pictures: Path, known: set[str]) -> dict[str, Any]:
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
