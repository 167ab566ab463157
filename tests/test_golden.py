"""No change of structure moves an id or a verdict unseen (``tests/golden.py`` writes the file
anew).
"""

import json

import golden
import pytest


@pytest.mark.parametrize("part", ["plans", "files"])
def test_nothing_moved_unseen(part):
    held = json.loads(golden.FILE.read_text())[part]
    found = getattr(golden, part)()
    moved = dict(held.items() ^ found.items())
    assert not moved, f"{len(moved)} {part} differ from golden.json: {sorted(moved)[:9]}"
