"""How our settings differ from a paper's."""

from types import SimpleNamespace

import pytest
from mistakes import refused

from entp_lab import paths, settings
from entp_lab.configs import StudyConfig
from entp_lab.settings import differing_settings, stated_settings

STUDY = SimpleNamespace(config=StudyConfig("one", "quick", "capacity", {"width": 16}), labels={})


def stated(key, paper, ours=""):
    return SimpleNamespace(id="F1", key=key, paper=paper, ours=ours)


def test_a_setting_that_no_record_holds_is_named():
    with refused("no record of F1 has 'loss'; write ours"):
        differing_settings([STUDY], [], [stated("loss", "every position")])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (("width", "16/32"), "none"),
        (("width", "16", "16"), "none"),
        (("width", "16", "32"), "width 32 (16)"),
    ],
)
def test_what_is_alike_is_no_difference(setting, expected):
    assert differing_settings([STUDY], [], [stated(*setting)]) == expected
    assert differing_settings([STUDY], [], []) == ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("F2-tokens,width,,", "row 1 of the table has no paper"),
        ("F2-tokens,width,64,\nF2-tokens,width,32,", ".*F2-tokens has 'width' twice"),
        ("F2-token,width,64,", ".*F2-token is not a claim of claims.csv beside it"),
    ],
)
def test_a_setting_of_another_form_is_refused_by_table_row_and_key(
    rows, message, tmp_path, monkeypatch
):
    known = settings.reference_claims()
    monkeypatch.setattr(settings, "reference_claims", lambda: known)
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    (tmp_path / "entp").mkdir()
    (tmp_path / "entp/settings.csv").write_text(f"id,key,paper,ours\n{rows}\n")
    with refused(f"settings.csv: {message}"):
        stated_settings()
