"""A Sphinx extension: formulas become MathML when the site is built, so that no page loads a typesetter."""

import re


def setup(app) -> dict:
    """Register the renderer that ``html_math_renderer = "mathml"`` names."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def inline(writer, node) -> None:
    """A formula within a line."""
    write(writer, node, "inline")


def display(writer, node) -> None:
    """A formula of its own, in a region that scrolls where the page is narrow."""
    writer.body.append('<div class="formula" tabindex="0" role="region" aria-label="Formula">')
    write(writer, node, "block", skip=False)
    writer.body.append("</div>\n")
    from docutils import nodes

    raise nodes.SkipNode


def write(writer, node, style: str, skip: bool = True) -> None:
    from docutils import nodes
    from latex2mathml.converter import convert

    formula = re.sub(r"\\pmod\s*(\{[^{}]*\}|\w)", r"\\ (\\mathrm{mod}\\ \1)", node.astext())  # else with tall brackets
    writer.body.append(convert(formula, display=style))
    if skip:
        raise nodes.SkipNode
