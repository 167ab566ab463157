"""Links of the project's Markdown, as the site has them: pages by their place there, other files as plain words."""

import os
import re
from html import escape
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?:<([^<>\n]*)>|([^()\s]*(?:\([^()\s]*\)[^()\s]*)*))\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#{1,4}) +(.+?) *$")


def anchor(heading: str) -> str:
    """What JupyterLab calls a heading's place, and the site with it."""
    return heading.strip().replace(" ", "-")


def page_of(path: str) -> str | None:
    """The site's page for a file of the repository, or None where it has none."""
    if path == "README.md":
        return "index.html"
    if path == "docs/findings.md":
        return "findings.html"
    if path == "CONTRIBUTING.md" or re.fullmatch(r"docs/(journal/)?[\w-]+\.md", path):
        return path.removesuffix(".md") + ".html"
    if re.fullmatch(r"notebooks/\d\d_\w+\.ipynb", path):
        return path.removesuffix(".ipynb") + ".html"
    return None


def relinked(text: str, source: str, page: str, known: set[str]) -> str:
    """Markdown of the file ``source`` as it stands on ``page``: links lead to pages, other files lose theirs.

    ``known``: the files of the repository that the site has pages of. Addresses of the web stay as they are.
    """

    def link(match: re.Match) -> str:
        label, target = match[1], unquote(match[2] if match[2] is not None else match[3])
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            return f'<a href="{escape(target)}">{label}</a>'
        if not parts.path:
            return f'<a href="#{escape(anchor(parts.fragment))}">{label}</a>'
        path = os.path.normpath(PurePosixPath(source).parent / parts.path)
        to = page_of(path) if path in known else None
        if to is None:
            return label
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        return f'<a href="{escape(relative(to, page) + fragment)}">{label}</a>'

    def picture(match: re.Match) -> str:
        path = os.path.normpath(PurePosixPath(source).parent / match[2])
        if not path.startswith("figures/"):
            return match[0]
        return f'<img class="figure" src="{escape(relative(path, page))}" alt="{escape(match[1])}" loading="lazy">'

    return outside_code(text, lambda part: LINK.sub(link, PICTURE.sub(picture, part)))


def relative(target: str, page: str) -> str:
    """The address of one page of the site, or of a file of it, seen from another."""
    return os.path.relpath(target, PurePosixPath(page).parent)


def with_anchors(text: str) -> str:
    """Markdown whose headings have, beside the site's, the places that JupyterLab gives them."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        match = HEADING.match(line)
        if match and not fenced and len(match[1]) > 1:
            lines += [f'<span id="{escape(anchor(match[2]))}"></span>', ""]
        lines.append(line)
    return "\n".join(lines)


def outside_code(text: str, change) -> str:
    """``text`` with ``change`` applied to what is neither a fenced block nor a code span."""
    parts = re.split(r"(^```.*?^```[^\n]*$|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("`") else change(part) for part in parts)
