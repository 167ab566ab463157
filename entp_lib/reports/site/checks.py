"""What can be wrong with a built site without a browser: links, pictures, and addresses outside it."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "image": "href"}


class Page(HTMLParser):
    """What one page links to, loads, shows without alt text, and the places it has."""

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
