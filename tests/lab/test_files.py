"""Files: what is not what it should be is named in one line, and what killed processes leave is removed."""

import os
import time

import pytest

from entp_lab.tables import read_json_lines, read_table
from entp_lib import files
from entp_lib.files import read_text, remove_stale
from entp_lib.validation import ConfigError

TABLE = "id,value\na,1\nb,2\n"


def loop(path):
    path.symlink_to(path)


BAD_TEXTS = {
    "missing": (lambda path: None, "cannot be read: No such file"),
    "a folder": (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    "a link to itself": (loop, "cannot be read: Too many levels"),
    "Latin-1": (lambda path: path.write_bytes("é".encode("latin-1")), "is not UTF-8"),
}


@pytest.mark.parametrize("how", BAD_TEXTS)
def test_what_is_no_text_is_named(tmp_path, how):
    path = tmp_path / "x.csv"
    (make, message) = BAD_TEXTS[how]
    make(path)
    for read in (read_text, lambda p: read_table(p, []), lambda p: list(read_json_lines(p))):
        with pytest.raises(ConfigError, match=f"x.csv {message}"):
            read(path)


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
    with pytest.raises(ConfigError, match=f"x.csv.*{message}"):
        read_table(tmp_path / "x.csv", ["id", "value"], needed=["value"])


@pytest.mark.parametrize("change", [str, lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")])
def test_a_table_is_read_with_any_end_of_line_and_a_mark_before_it(tmp_path, change):
    (tmp_path / "x.csv").write_bytes(change(TABLE).encode())
    assert read_table(tmp_path / "x.csv", ["id", "value"]).to_dict("list") == {"id": ["a", "b"], "value": [1, 2]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("null", "line 2: null is no object"),
        ("{", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path, line, message):
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n' + line + "\n")
    with pytest.raises(ConfigError, match=message):
        list(read_json_lines(tmp_path / "x.jsonl"))


def test_lines_end_where_json_says(tmp_path):
    """A text may hold what Unicode counts as an end of line; empty lines and marks of byte order are nothing."""
    (tmp_path / "x.jsonl").write_text(
        '\ufeff{"a": "one\u2028two\x85three"}\r\n\n{"a": 2}', encoding="utf-8", newline=""
    )
    assert list(read_json_lines(tmp_path / "x.jsonl")) == [(1, {"a": "one\u2028two\x85three"}), (3, {"a": 2})]


def age(path, seconds=2 * files.STALE_SECONDS):
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_only_what_is_old_is_removed(tmp_path):
    kept = [tmp_path / f".new.{i}" for i in range(2)] + [tmp_path / "plain"]
    gone = [tmp_path / ".old", tmp_path / ".old folder"]
    for path in (*kept, *gone):
        path.mkdir() if "folder" in path.name else path.write_text("")
    (tmp_path / ".old folder" / "inside").write_text("")
    age(tmp_path / ".old folder" / "inside")
    busy = tmp_path / ".busy folder"
    busy.mkdir()
    (busy / "inside").write_text("")  # was touched just now
    for path in (*kept[2:], *gone, busy):
        age(path)
    (tmp_path / ".link").symlink_to(tmp_path / "plain")
    remove_stale(tmp_path, ".*")
    assert set(tmp_path.iterdir()) == {*kept, busy, tmp_path / ".link"}
    remove_stale(tmp_path / "missing", ".*")
