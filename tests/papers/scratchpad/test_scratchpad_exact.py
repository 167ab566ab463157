"""What may be kept of keys and values when a text grows."""

import pytest

from entp_papers.scratchpad.exact import KINDS, changes, random_model
from entp_papers.scratchpad.format import Example

EXAMPLE = Example((5, 6), ((3, 4), (7, 8, 3), (4, 4), (6,)))


@pytest.mark.parametrize(
    ("kind", "scheme", "kept", "present"),
    [
        ("decoder", "learned", 3, 3),
        ("ENTP", "learned", 1, 1),
        ("inductive decoder", "learned", 3, 0),  # a state that has ended moves: no layer stays
        ("inductive decoder", "rotary", 3, 0),
        ("inductive decoder", "alibi", 3, 1),  # keys have no position
        ("inductive decoder", "none", 3, 1),
        ("inductive ENTP", "learned", 1, 0),
    ],
)
def test_layers_that_keep_their_keys_and_values(kind, scheme, kept, present):
    """A decoder keeps all, ENTP the first; an inductive decoder all within a state, little of one
    that has ended.
    """
    architecture, inductive, _ = KINDS[kind]
    model = random_model(architecture, scheme, 1, n_layers=3)
    rows = changes(model, EXAMPLE, inductive)
    found = {(row["event"], row["part"]): row["layers_kept"] for row in rows}
    assert found.pop(("state", "present")) == present
    assert set(found.values()) == {kept}
