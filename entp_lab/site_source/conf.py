"""Configuration of Sphinx for the site, whose sources ``entp_lab.site`` lays out.

Formulas become MathML when the site is built, so that no page loads a typesetter.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert

from entp_lab.paths import root

project = html_title = "ENTP, reproduced"
author = "the ENTP reproduction authors"
language = "en"
extensions = ["myst_nb", "sphinx.ext.apidoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_*", "api/*/modules.rst"]
suppress_warnings = ["docutils", "myst.header", "mystnb.lexer", "mystnb.unknown_mime_type"]
myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 4
myst_heading_slug_func = "entp_lab.site.anchor"
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_render_markdown_format = "myst"
nb_mime_priority_overrides = [("html", "text/html", 0)]
apidoc_modules = [
    {"path": root() / package, "destination": f"api/{package}", "automodule_options": {"members"}}
    for package in ("entp_lib", "entp_lab", "entp_papers")
]
autodoc_typehints = "none"
autodoc_inherit_docstrings = False  # torch's link to its own pages, which do not exist here
autodoc_mock_imports = ["gguf", "peft"]
html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_context = {"default_mode": "auto"}
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = False
html_math_renderer = "mathml"
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    "navbar_persistent": [],
}
html_sidebars = {"**": ["navbar-logo.html", "search-button-field.html", "sbt-sidebar-nav.html"]}


def setup(app) -> None:
    """Register the formula renderer that ``html_math_renderer`` names, and the filter of docstrings."""
    app.connect("autodoc-process-docstring", plain_signs)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(display, None)
    )


def plain_signs(app, what, name, obj, options, lines: list[str]) -> None:
    """Escape what Sphinx would take for markup in a docstring, outside ``code``: bars, a lone star, a final _."""
    for i, line in enumerate(lines):
        parts = line.split("``")
        lines[i] = "``".join(
            p if k % 2 else re.sub(r"\||(?<!\w)\*(?!\w)|(?<=\w)_(?!\w)", r"\\\g<0>", p)
            for k, p in enumerate(parts)
        )


def inline(writer, node) -> None:
    """Write a formula within a line."""
    writer.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def display(writer, node) -> None:
    """Write a formula on a line of its own, in a region that scrolls where the page is narrow."""
    region = '<div class="formula" tabindex="0" role="region" aria-label="Formula">{}</div>\n'
    writer.body.append(region.format(mathml(node, "block")))
    raise nodes.SkipNode


def mathml(node, style: str) -> str:
    """Return a formula as MathML; ``\\pmod`` is replaced, since its brackets would be tall."""
    return convert(
        re.sub(r"\\pmod\s*(\{[^{}]*\}|\w)", r"\\ (\\mathrm{mod}\\ \1)", node.astext()),
        display=style,
    )
