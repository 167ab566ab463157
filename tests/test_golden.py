"""No change of structure moves an id unseen (``tests/golden.py`` writes the file anew)."""

import json

import golden


def test_nothing_moved_unseen():
    moved = dict(json.loads(golden.FILE.read_text()).items() ^ golden.plans().items())
    assert not moved, f"{len(moved)} plans differ from golden.json: {sorted(moved)[:9]}"
