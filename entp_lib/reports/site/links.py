"""Links of the project's Markdown, rewritten to the site's pages, and a check of the built pages for broken ones."""

import os
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?:<([^<>\n]*)>|([^()\s]*(?:\([^()\s]*\)[^()\s]*)*))\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#{1,4}) +(.+?) *$")


def anchor(heading: str) -> str:
    """Anchor of a heading, as JupyterLab forms it, and the site with it."""
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
    """Markdown of the file ``source`` rewritten for ``page``: links lead to pages, other files lose theirs.

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
    """Markdown whose headings have JupyterLab's anchors in addition to the site's."""
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


LOADS = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "image": "href"}


class Page(HTMLParser):
    """Links, loaded files, pictures without alt text, and anchors of one page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.without_alt: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs) -> None:
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in LOADS and given.get(LOADS[tag]) and given.get("rel") != "canonical":
            self.loads.append(given[LOADS[tag]])
        if tag == "img" and not (given.get("alt") or "").strip() and given.get("role") != "presentation":
            self.without_alt.append(given.get("src", "?"))


def read_pages(folder: Path) -> dict[Path, Page]:
    """Every HTML page below ``folder``."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


def broken_links(folder: Path) -> list[str]:
    """Links and loaded files that are not there, places that no page has, and what is loaded from elsewhere."""
    pages, found = read_pages(folder), []
    for path, page in pages.items():
        where = path.relative_to(folder)
        found += [f"{where} loads {a}" for a in page.loads if urlsplit(a).netloc]
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                found.append(f"{where} -> {address}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{where} -> {address} (no such place)")
    return list(dict.fromkeys(found))


def pictures_without_alt(folder: Path) -> list[str]:
    """Pictures that say nothing to whoever cannot see them."""
    pages = read_pages(folder)
    return [f"{path.relative_to(folder)}: {src}" for path, page in pages.items() for src in page.without_alt]
