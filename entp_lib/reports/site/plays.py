"""Things to play with, each a page of plain JavaScript and SVG: no kernel, no network, no library."""

from pathlib import Path

from entp_lib import paths

TITLES = {
    "count3": "Count3 by hand, and what trained models answer",
    "attention": "Attention of every prefix, model beside model",
    "costs": "What a token and a sequence cost",
}
WORDS = {
    "count3": (
        "Count3 counts the ordered pairs $(i, j)$ of positions with $x_i + x_j + x_n \\equiv 0 \\pmod n$, where $n$ is "
        "the length and $x_n$ the last number, and takes the count modulo $n$. Type whole numbers with spaces between "
        "them; the pairs and the answer appear below. Four digits 0 to 9 are a **seed** of the trained models: then "
        "every scored prefix is shown with what each model answers. The models are those of the records named beside "
        "them (a reduced task: 10 numbers, 10 symbols); a fifth of the seeds was kept from training."
    ),
    "attention": (
        "One sequence of Count3. Move the slider: each picture shows, for the prefix up to there, how much every "
        "token (row) looks at every other (column), darker for more. A **decoder** reads the prefix under a causal "
        "mask, so its picture only grows; **ENTP** reads each prefix afresh, so all of it may change. The "
        "**constructed** model has weights written down by hand and answers every prefix right."
    ),
    "costs": (
        "Multiply-adds of the matrix products, by the formulas of the library (`entp_lib.models.costs`), without the "
        "output layer: the next token of a decoder with a cache takes $L\\,(12 D^2 + 2 n D)$, of ENTP by its "
        "definition $L\\,(12 n D^2 + 2 n^2 D)$; a sequence is the sum over its tokens. $n$ is the number of tokens, "
        "$D$ the width, $L$ the layers. Scales are logarithmic."
    ),
}


def pages(static: Path) -> dict[str, str]:
    """The pages as Markdown, by name; their data goes to ``static`` as scripts, which need no server to load."""
    for name in ("count3", "attention"):
        data = (paths.results() / "play" / f"{name}.json").read_text(encoding="utf-8").strip()
        (static / f"{name}_data.js").write_text(f"window.{name}Data = {data};\n", encoding="utf-8")
    return {name: page(name) for name in TITLES}


def page(name: str) -> str:
    """One page: its title, words, the piece, and the scripts that make it."""
    data = f'<script src="../_static/{name}_data.js"></script>\n' if name != "costs" else ""
    return (
        f'# {TITLES[name]}\n\n{WORDS[name]}\n\n<div class="widget" id="play-{name}"></div>\n\n'
        f'<noscript>This page needs JavaScript.</noscript>\n{data}<script src="../_static/play.js"></script>\n'
    )
