"""Live cells are short where nobody waits for them."""

import pytest

from entp_lab import live


@pytest.mark.parametrize(("setting", "made"), [("", 600), ("short", live.FEW)])
def test_a_live_cell_is_short_only_where_that_is_asked_for(monkeypatch, setting, made):
    monkeypatch.setenv("ENTP_LIVE", setting)
    assert live.steps(600) == made and live.steps(1) == 1
    assert live.steps(600, "smoke") == live.FEW
