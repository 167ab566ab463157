"""Building the site with Sphinx, without executing anything and without a network."""

import importlib.util
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
from entp_lib.reports.site import checks, sources
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
    """Where the site goes: a folder that git ignores."""
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
    sources.lay_out(source)
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
    sources.beside(folder)
    lighten(folder)
    broken = checks.broken_links(folder)
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
