"""Whether a notebook can be run at all, asked before any of them is."""

from pathlib import Path

from entp_lib import paths
from entp_lib.files import read_text
from entp_lib.validation import ConfigError, require


def check_sound(notebook: Path) -> None:
    """ConfigError names a notebook that is missing, damaged, or not what Jupyter writes."""
    import nbformat

    where, restore = f"notebook {paths.relative(notebook)}", "git checkout restores the committed one"
    text = read_text(notebook)
    try:
        require(not notebook.read_bytes().startswith(b"\xef\xbb\xbf"), "it begins with a mark of byte order")
        nbformat.validate(nbformat.reads(text, as_version=4))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, nbformat.ValidationError) as error:
        why = "it is empty" if not text.strip() else (str(error).strip() or type(error).__name__).split("\n")[0][:120]
        raise ConfigError(f"{where} cannot be read ({why}); {restore}") from error
