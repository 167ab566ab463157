"""No change of structure moves an id or a verdict unseen (``tests/golden.py`` writes the file anew)."""

import json

import golden
import pytest


@pytest.mark.parametrize("part", ["plans", "files"])
def test_nothing_moved_unseen(part):
    held, found = json.loads(golden.FILE.read_text())[part], getattr(golden, part)()
    moved = {name for name in held.keys() | found.keys() if held.get(name) != found.get(name)}
    assert not moved, f"{len(moved)} {part} differ from tests/golden.json: {', '.join(sorted(moved)[:9])}"
