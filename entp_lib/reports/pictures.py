"""README's picture: who sees whom in a decoder, a prefix decoder and ENTP, what it costs, and what it reaches.

Drawn as SVG text, the masks computed by the rule that the models use; readable on light and dark pages.
"""

from collections.abc import Callable
from html import escape

from entp_lib.architectures import ARCHITECTURES

TOKENS, PROMPT, CELL = 6, 3, 22
WIDTH, HEIGHT, PANEL = 960, 285, 320
SHOWN: tuple[tuple[str, Callable[[int, int], bool], tuple[str, ...]], ...] = (
    (
        "decoder",
        lambda i, j: j <= i,
        ("one pass under a causal mask", "a token's state is never revised", "n² work for a sequence of n tokens"),
    ),
    (
        "prefix_decoder",
        lambda i, j: j <= i or (i < PROMPT and j < PROMPT),
        ("one pass, the prompt sees itself in full", "what comes after it is never revised", "n² work"),
    ),
    (
        "entp",
        lambda i, j: True,
        (
            "a pass per prefix, without a mask",
            "every state is revised at every step",
            "n³ work; functions no decoder has",
        ),
    ),
)
ALT = (
    "Who sees whom among six tokens. Decoder: each token sees itself and the earlier ones. Prefix decoder: the first "
    "three, the prompt, also see each other. ENTP: every token sees every other, afresh for each prefix. Work for a "
    "sequence of n tokens grows as n squared, n squared and n cubed."
)


def attention() -> str:
    """The picture, an SVG file's text."""
    body = "".join(panel(k, *entry) for k, entry in enumerate(SHOWN))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-labelledby="title" font-family="system-ui, Helvetica, Arial, sans-serif">\n'
        f'<title id="title">{escape(ALT)}</title>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n{body}</svg>\n'
    )


def panel(number: int, name: str, sees: Callable[[int, int], bool], lines: tuple[str, ...]) -> str:
    """One architecture: its name, its mask, a row for who looks and a column for who is seen, and its lines."""
    kind, left, top = ARCHITECTURES[name], number * PANEL + 20, 56
    parts = [text(left, 34, kind.label, 20, kind.colour, bold=True)]
    for i in range(TOKENS):
        for j in range(TOKENS):
            fill = kind.colour if sees(i, j) else "#f1f1f1"
            x, y = left + j * CELL, top + i * CELL
            parts.append(f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3" fill="{fill}"/>\n')
    side = left + TOKENS * CELL + 8
    parts += [
        text(side, top + 16, "row: who looks", 13, "#555555"),
        text(side, top + 34, "column: at whom", 13, "#555555"),
    ]
    if name == "entp":
        parts += [
            text(side, top + 66, "shown: the last", 13, "#555555"),
            text(side, top + 84, f"of {TOKENS} passes", 13, "#555555"),
        ]
    if name == "prefix_decoder":
        parts.append(text(side, top + 66, f"prompt: first {PROMPT}", 13, "#555555"))
    for k, line in enumerate(lines):
        parts.append(text(left, top + TOKENS * CELL + 32 + 26 * k, line, 14.5, "#222222"))
    return "".join(parts)


def text(x: int, y: int, words: str, size: float, colour: str, bold: bool = False) -> str:
    """A line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{weight}>{escape(words)}</text>\n'
