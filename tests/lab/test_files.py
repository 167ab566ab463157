"""Files: what is not what it should be is named in one line, and what killed processes leave is
removed.
"""

import os
import time

import pytest
from mistakes import refused

from entp_lab.tables import read_table
from entp_lab.texts import read_text
from entp_lib import files
from entp_lib.files import remove_stale

TABLE = "id,value\na,1\nb,2\n"


BAD_TEXTS = {
    "cannot be read: No such file": lambda path: None,
    "cannot be read: Is a directory": lambda path: path.mkdir(),
    "cannot be read: Too many levels": lambda path: path.symlink_to(path),
    "is not UTF-8": lambda path: path.write_bytes("é".encode("latin-1")),
}
READERS = {
    "text": read_text,
    "table": lambda path: read_table(path, []),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("message", BAD_TEXTS)
def test_what_is_no_text_is_named(tmp_path, message, reader):
    path = tmp_path / "x.csv"
    BAD_TEXTS[message](path)
    with refused(f"x.csv {message}"):
        READERS[reader](path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no table of comma-separated values: it is empty"),
        ('id,value\na,"1', "is no table of comma-separated values"),
        ("id,value\na,1,2\nb,1,2,3,4\n", "is no table of comma-separated values"),
        ("id\na\n", "lacks the columns value; it has id"),
        ("id,value\na,1\nb\n", "row 2 of the table has no value"),
    ],
)
def test_a_table_that_is_none_is_named(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with refused(f"x.csv.*{message}"):
        read_table(tmp_path / "x.csv", ["id", "value"], needed=["value"])


@pytest.mark.parametrize("change", [str, lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")])
def test_a_table_is_read_with_any_end_of_line_and_a_mark_before_it(tmp_path, change):
    (tmp_path / "x.csv").write_bytes(change(TABLE).encode())
    assert read_table(tmp_path / "x.csv", ["id", "value"]).to_dict("list") == {
        "id": ["a", "b"],
        "value": [1, 2],
    }


def age(path):
    then = time.time() - 2 * files.STALE_SECONDS
    os.utime(path, (then, then))


def make(path, held=""):
    """Make a file, or a folder that holds one."""
    if held:
        path.mkdir()
    (path / held).write_text("")
    return path


def test_only_what_is_old_is_removed(tmp_path):
    old = make(tmp_path / ".old")
    old_folder = make(tmp_path / ".old folder", "inside")
    busy = make(tmp_path / ".busy folder", "inside")  # of which only the folder is old
    plain = make(tmp_path / "plain")
    new = make(tmp_path / ".new")
    link = tmp_path / ".link"
    link.symlink_to(plain)
    for path in (old, old_folder / "inside", old_folder, busy, plain):
        age(path)
    remove_stale(tmp_path, ".*")
    assert set(tmp_path.iterdir()) == {busy, plain, new, link}
    remove_stale(tmp_path / "missing", ".*")
