"""The library's public docstrings as pages, read from the source and not imported."""

import ast
import re
from pathlib import Path

from entp_lib import paths
from entp_lib.records.provenance import PACKAGES
from entp_lib.reports.site.links import outside_code

Named = ast.FunctionDef | ast.ClassDef


def packages() -> dict[str, list[Path]]:
    """The library's modules by their page: a folder a page, single files together on ``entp_lib``."""
    root, found = paths.root(), {}
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        found.setdefault(".".join(path.parent.relative_to(root).parts[:2]), []).append(path)
    return found


def page(name: str, modules: list[Path]) -> str:
    """One page: every module with its docstring, and its public functions and classes with theirs."""
    parts = [f"# {name}\n"]
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        dotted = ".".join(path.relative_to(paths.root()).with_suffix("").parts).removesuffix(".__init__")
        public = [node for node in tree.body if isinstance(node, Named) and not node.name.startswith("_")]
        text = ast.get_docstring(tree)
        if text or public:
            parts += [f"## {dotted}\n", prose(text or ""), *(entry(node) for node in public)]
    return "\n".join(parts)


def entry(node: Named) -> str:
    """A function or class: its signature, its docstring and its public methods."""
    parts = [
        f"### {node.name.replace('_', chr(92) + '_')}\n",
        f"```python\n{signature(node)}\n```\n",
        prose(ast.get_docstring(node) or ""),
    ]
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and ast.get_docstring(method):
                parts += [f"```python\n{signature(method)}\n```\n", prose(ast.get_docstring(method))]
    return "\n".join(parts)


def signature(node: Named) -> str:
    """``def name(arguments) -> type``, or ``class Name(bases)``."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def prose(docstring: str) -> str:
    """A docstring as Markdown: indented lines are code, signs that Markdown would take are escaped."""
    blocks = []
    for block in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = block.split("\n")
        if all(line.startswith("    ") or line.startswith(">>>") for line in lines if line.strip()) and block.strip():
            blocks.append("```text\n" + "\n".join(line.removeprefix("    ") for line in lines) + "\n```")
        else:
            text = re.sub(r"``([^`]+)``", r"`\1`", "\n".join(line.strip() for line in lines))
            blocks.append(outside_code(text, lambda part: re.sub(r"([\\*_<>\[\]$|{}#~])", r"\\\1", part)))
    return "\n\n".join(blocks) + "\n"
