"""Where the notebooks open without installing: Binder and Colab, once ``pyproject.toml`` names the repository."""

import tomllib
from urllib.parse import urlsplit

from entp_lib import paths
from entp_lib.files import read_text
from entp_lib.validation import require

OVERVIEW = "notebooks/00_overview.ipynb"


def repository() -> str:
    """Owner and name on GitHub by ``[project.urls] Repository``; empty where none is named. ConfigError for others."""
    url = tomllib.loads(read_text(paths.root() / "pyproject.toml")).get("project", {}).get("urls", {}).get("Repository")
    if not url:
        return ""
    parts = urlsplit(url)
    name = parts.path.strip("/").removesuffix(".git")
    require(
        parts.netloc == "github.com" and name.count("/") == 1,
        f"pyproject.toml, [project.urls] Repository = {url!r}: must be https://github.com/OWNER/NAME",
    )
    return name


def links(name: str) -> str:
    """A line of Markdown with the two badges for a repository ``owner/name``; without one, how to get them."""
    if not name:
        return (
            "`.devcontainer/` opens it in a container, `.binder/` on Binder. Badges for Binder and Colab stand here as "
            "soon as `pyproject.toml` has `[project.urls] Repository`."
        )
    binder = f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath=lab/tree/{OVERVIEW}"
    colab = f"https://colab.research.google.com/github/{name}/blob/HEAD/{OVERVIEW}"
    return (
        f"Without installing: [![Binder](https://mybinder.org/badge_logo.svg)]({binder}) "
        f"[![Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
    )
