"""Building the site with Sphinx, without executing anything and without a network: its sources, then its pages."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import webbrowser
from pathlib import Path

from entp_lib import paths
from entp_lib.files import read_text
from entp_lib.records.store import Store
from entp_lib.reports.ledger import ledger
from entp_lib.reports.readme import sorted_notebooks
from entp_lib.reports.site import api, pages, plays
from entp_lib.reports.site.links import broken_links, relinked
from entp_lib.validation import ConfigError, require

NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "latex2mathml")
INSTALL = ".venv/bin/python -m pip install -e '.[site]'"
UNUSED = (
    "*.map",
    "*macros.html",
    "vendor/fontawesome/webfonts/*",
    "scripts/fontawesome.js*",
)  # of the theme; icons are the page's own

SEARCHING = r"\s*<script[^>]*(?:searchtools|language_data|searchindex|sphinx_highlight|doctools)\.js[^>]*></script>"
SPOKEN = (  # what the theme says to screen readers and does not show, or does not say at all
    (r'(<button class="[^"]*search-button-field[^>]*?) aria-label="Search"', r"\1"),
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'<summary>(?=<span class="toctree-toggle")', '<summary aria-label="Pages below this one">'),
)


def default_folder() -> Path:
    """Default folder of the site, which git ignores."""
    return paths.root() / "build" / "site"


def missing() -> list[str]:
    """Modules of the extra ``site`` that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def check_installed() -> None:
    """ConfigError with what to install where the extra is missing."""
    require(not missing(), f"the site needs {', '.join(missing())}; this installs it: {INSTALL}")


def install_extra() -> None:
    """Install the packages of the extra ``site`` where some are missing. ConfigError where pip cannot."""
    if not missing():
        return
    project = tomllib.loads(read_text(paths.root() / "pyproject.toml"))["project"]
    print(f"the site needs {', '.join(missing())}: installing the extra `site`, about a minute", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *project["optional-dependencies"]["site"]], capture_output=True, text=True)
    importlib.invalidate_caches()
    why = ([line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines() or ["?"])[-1]
    require(done.returncode == 0, f"pip cannot install what the site needs ({why.strip()}); by hand: {INSTALL}")


def build(folder: Path | None = None) -> Path:
    """Build the site into ``folder`` and return its first page. ConfigError says what is wrong with it."""
    check_installed()
    folder = folder or default_folder()
    source = folder.parent / f"{folder.name}-source"
    lay_out(source)
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", "-d", str(source / ".doctrees")]
    environment = {**os.environ, "PYTHONPATH": str(paths.root())}
    done = subprocess.run(
        [*command, str(source), str(folder)], env=environment, cwd=source, capture_output=True, text=True
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "WARNING" in line or "ERROR" in line or "rror:" in line]
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise ConfigError(f"the site was not built: {(lines or done.stderr.splitlines() or ['?'])[0]}{more}")
    copy_linked_files(folder)
    lighten(folder)
    broken = broken_links(folder)
    require(not broken, f"the site has {len(broken)} broken links: {'; '.join(broken[:5])}")
    return folder / "index.html"


def lighten(folder: Path) -> None:
    """Take out what no page needs: a megabyte of icons, source maps, and the scripts that would load them."""
    static = folder / "_static"
    for name in ("_sources", "jupyter_execute"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for pattern in UNUSED:
        for path in static.rglob(pattern) if "/" not in pattern else static.glob(pattern):
            path.unlink()
    for sheet in static.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        text = re.sub(r"@font-face\s*\{[^}]*fontawesome[^}]*\}|(?<=[{}])\.fa-[^{}]*\{[^{}]*\}", "", text)
        sheet.write_text(text, encoding="utf-8")
    for page in folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        text = text.replace('localStorage.getItem("mode") || ""', 'localStorage.getItem("mode") || "auto"')
        for pattern, instead in SPOKEN:
            text = re.sub(pattern, instead, text)
        text = re.sub(r"\s*<(?:script|link)[^>]*fontawesome[^>]*>(?:</script>)?", "", text)
        if page.name != "search.html":  # which alone searches; the index is as large as all else
            text = re.sub(SEARCHING, "", text)
        if 'class="cell' not in text:
            text = re.sub(r"\s*<link[^>]*mystnb[^>]*>", "", text)
        page.write_text(text, encoding="utf-8")


def site_command(options) -> int:
    """``./run_all.sh --site``: build the site and open it."""
    install_extra()
    begun = time.monotonic()
    first = build()
    files = [path for path in first.parent.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 2**20
    seconds = time.monotonic() - begun
    print(f"site of {len(files)} files, {size:.1f} MiB, built in {seconds:.0f} s: {paths.relative(first)}")
    if not options.no_browser:
        webbrowser.open(first.as_uri())
    return 0


STATIC = Path(__file__).parent / "static"
CONFIGURATION = '''"""Written by entp_lib.reports.site.build."""
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
    shutil.copy(paths.root() / "docs/pictures/attention.svg", static)
    write(folder / "conf.py", CONFIGURATION)
    for path in sorted_notebooks():
        page = pages.notebook_page(json.loads(read_text(path)), path.stem, alts, static / "nb", known)
        write(folder / "notebooks" / path.name, json.dumps(page, ensure_ascii=False))
    for name in known - {"README.md", "docs/findings.md"}:
        if name.endswith(".md"):
            write(
                folder / name, relinked(read_text(paths.root() / name), name, name.removesuffix(".md") + ".html", known)
            )
    write(folder / "index.md", pages.start(known, plays.TITLES))
    write(folder / "findings.md", pages.findings_page(table, known))
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


def copy_linked_files(folder: Path) -> None:
    """Put figures and records, which pages link to, into the finished site."""
    shutil.copytree(paths.figures(), folder / "figures", dirs_exist_ok=True)
    shutil.copytree(paths.results() / "records", folder / "records", dirs_exist_ok=True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
