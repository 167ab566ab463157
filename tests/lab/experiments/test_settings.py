"""How our settings differ from a paper's."""

from types import SimpleNamespace

import pytest
from mistakes import one_line

from entp_lab import paths, settings
from entp_lab.configs import StudyConfig
from entp_lab.registry import EXPERIMENTS
from entp_lab.settings import differing_settings, parsed, stated_settings
from entp_lib.validation import ConfigError


def record(config, **labels):
    return SimpleNamespace(config=config, labels=labels)


def study(seed=0, **params):
    return record(StudyConfig("one", "quick", "capacity", params, seed, seed))


def differing(setting, *records):
    return differing_settings(records, [], parsed(setting, "place"))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("width: 64", "width 16/24 (64)"),
        ("width: 16/24/64; head_width: 8", "head_width 4/6 (8)"),  # by width and heads
        ("library: 2,048; tested: 2/3; n_heads: 4", "none"),
        ("tested: 200; width: 16/24", "tested 2/3 (200)"),
        ("loss: every position | last token", "loss last token (every position)"),
        ("loss: last token | last token", "none"),
        ("width: 512 | 64", "width 64 (512)"),  # ours is taken as stated
        ("runs: 10", "runs 2 (10)"),
        ("", ""),
    ],
)
def test_stated_settings_are_compared_with_those_of_the_records(setting, expected):
    model = dict(width=16, n_heads=4)
    found = [study(seed, library=2048, tested=[2, 3], model=model | dict(width=w)) for seed, w in ((0, 16), (1, 24))]
    stated = parsed(setting, "place") if setting else {}
    assert differing_settings(found, [], stated) == expected


def test_a_study_that_sets_its_number_of_runs_is_taken_at_its_word():
    assert differing("runs: 5", study(runs=2), study(runs=2)) == "runs 2 (5)"


def test_runs_are_compared_with_those_of_the_papers_tier_and_what_is_stated_comes_first():
    experiment = EXPERIMENTS["count3"]
    ours, papers = (experiment.plan(tier, 1) for tier in ("quick", "paper"))
    ours = [record(run.config, **run.labels) for run in ours if run.labels["arm"] == "entp"]
    alike = [record(run.config, **run.labels) for run in papers]
    found = differing_settings(ours, papers, {})
    assert "length 10 (64)" in found
    assert "head_width 16 (64)" in found
    assert "seed 0" not in found
    assert differing_settings(alike, papers, {}) == "none"
    assert differing_settings(ours, [], {}) == ""
    stated = differing_settings(ours, papers, parsed("length: 100; width: 32/64", "place"))
    assert "length 10 (100)" in stated
    assert ", width" not in stated


def test_a_setting_that_no_record_holds_is_named():
    with pytest.raises(ConfigError, match="place: its records have no 'loss'; write 'loss: every position | ours'"):
        differing("loss: every position", study(width=16))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("F2-tokens,width", r"F2-tokens has the setting 'width': must be 'key: the paper's value' or"),
        ("F2-tokens,width:", "F2-tokens has the setting 'width:'"),
        ("F2-tokens,width: 64 |", r"F2-tokens has the setting 'width: 64 \|'"),
        ("F2-tokens,width: 64; width: 32", "F2-tokens has 'width' twice"),
        ("F2-token,width: 64", "F2-token is not a claim of claims.csv beside it"),
        ("F2-tokens,width: 1\nF2-tokens,steps: 1", "F2-tokens has a setting already"),
    ],
)
def test_a_setting_of_another_form_is_refused_by_table_row_and_key(row, message, tmp_path, monkeypatch):
    known = settings.reference_claims()
    monkeypatch.setattr(settings, "reference_claims", lambda: known)
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    (tmp_path / "entp").mkdir()
    (tmp_path / "entp" / "settings.csv").write_text(f"id,setting\n{row}\n")
    with one_line(ConfigError, match=f"settings.csv: {message}"):
        stated_settings()
