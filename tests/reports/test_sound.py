"""Notebooks that cannot be run are named before any of them is."""

import pytest

from entp_lib.reports.parameters import defaults, notebook_paths, read_notebook
from entp_lib.validation import ConfigError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "it is empty"),
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: b"\xef\xbb\xbf" + data, "a mark of byte order"),
        (lambda data: b"[" * 100_000, "cannot be read"),
        (lambda data: b'{"cells": 5, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "cannot be read"),
        (lambda data: data + b"\xe9", "is not UTF-8"),
    ],
)
def test_a_damaged_one_is_named(tmp_path, change, message):
    path = tmp_path / "03_x.ipynb"
    path.write_bytes(change(next(p for p in notebook_paths() if p.stem.startswith("03")).read_bytes()))
    for read in (read_notebook, defaults):
        with pytest.raises(ConfigError, match=message) as error:
            read(path)
        assert "03_x.ipynb" in str(error.value)
