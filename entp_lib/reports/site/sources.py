"""What Sphinx reads, laid out in a folder of its own: copies of pages and notebooks, and the pages made here."""

import json
import shutil
from pathlib import Path

from entp_lib import paths
from entp_lib.files import read_text
from entp_lib.records.store import Store
from entp_lib.reports import pictures
from entp_lib.reports.ledger import ledger
from entp_lib.reports.readme import sorted_notebooks
from entp_lib.reports.site import api, ledger_page, notebook_pages, pages, plays
from entp_lib.reports.site.links import relinked

STATIC = Path(__file__).parent / "static"
CONFIGURATION = '''"""Written by entp_lib.reports.site.sources."""
project = "ENTP, reproduced"
author = "the ENTP reproduction authors"
extensions = ["myst_nb", "entp_lib.reports.site.mathematics"]
html_math_renderer = "mathml"
html_theme = "sphinx_book_theme"
html_title = "ENTP, reproduced"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    "navbar_persistent": [],
}
html_sidebars = {"**": ["navbar-logo.html", "search-button-field.html", "sbt-sidebar-nav.html"]}
myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = True
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [("html", "text/html", 0)]
language = "en"
suppress_warnings = ["myst.header", "mystnb.lexer"]
'''


def known_files() -> set[str]:
    """The files of the repository that the site has pages of."""
    root = paths.root()
    found = {"README.md", "CONTRIBUTING.md", *(str(p.relative_to(root)) for p in (root / "docs").rglob("*.md"))}
    return found | {f"notebooks/{p.name}" for p in sorted_notebooks()}


def lay_out(folder: Path) -> None:
    """Write everything below ``folder``, which is emptied first."""
    from entp_lib.experiments import png_files

    shutil.rmtree(folder, ignore_errors=True)
    known, table = known_files(), ledger(Store(read_only=True))
    alts = {path.stem: about.split(" [")[0] for path, about in png_files.gallery()}
    static = folder / "_static"
    shutil.copytree(STATIC, static)
    write(static / "attention.svg", pictures.attention())
    write(folder / "conf.py", CONFIGURATION)
    for path in sorted_notebooks():
        page = notebook_pages.page(json.loads(read_text(path)), path.stem, alts, static / "nb", known)
        write(folder / "notebooks" / path.name, json.dumps(page, ensure_ascii=False))
    for name in known - {"README.md", "docs/findings.md"}:
        if name.endswith(".md"):
            write(
                folder / name, relinked(read_text(paths.root() / name), name, name.removesuffix(".md") + ".html", known)
            )
    write(folder / "index.md", pages.start(known, plays.TITLES))
    write(folder / "findings.md", ledger_page.page(table, known))
    write(folder / "gallery.md", pages.gallery())
    for name in pages.papers():
        write(folder / "papers" / f"{name}.md", pages.paper(name, table, known))
    lay_out_api(folder / "api")
    for name, text in plays.pages(static).items():
        write(folder / "play" / f"{name}.md", text)


def lay_out_api(folder: Path) -> None:
    """A page for each package of the library, and one that lists them."""
    listed = []
    for name, modules in api.packages().items():
        write(folder / f"{name}.md", api.page(name, modules))
        listed.append(name)
    contents = "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(listed) + "\n```\n"
    about = "What each module and its public functions say of themselves, from the source.\n"
    write(folder / "index.md", f"# API\n\n{about}\n{contents}")


def beside(folder: Path) -> None:
    """Put figures and records, which pages link to, into the finished site."""
    shutil.copytree(paths.figures(), folder / "figures", dirs_exist_ok=True)
    shutil.copytree(paths.results() / "records", folder / "records", dirs_exist_ok=True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
