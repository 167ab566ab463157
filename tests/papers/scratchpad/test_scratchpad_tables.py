"""The notebook's tables repeat the records."""

import pandas as pd
import pytest

from entp_lib.records.store import Record
from entp_lib.registry import STUDIES
from entp_papers.scratchpad import tables
from entp_papers.scratchpad.experiment import plan, plan_training


def made(runs):
    """Records of runs, computed in memory."""
    found = []
    for run in runs:
        metrics, curves = STUDIES.named(run.config.study)(**run.config.params)
        found.append(Record(run.config.experiment, 1, run.config, metrics, curves, {}, labels=run.labels))
    return found


@pytest.fixture(scope="module")
def studied():
    return made(plan("smoke"))


@pytest.fixture(scope="module")
def trained():
    return made(plan_training("smoke"))


def test_the_equivalence_table_has_every_ingredient(studied):
    table = tables.equivalence_table(studied)
    assert list(table.index) == [("decoder", "alibi"), ("decoder", "learned")]
    names = ["nothing", "group mask", "re-indexed positions", "masked targets"]
    assert list(table["loss"].columns) == names == list(table["gradient"].columns)
    assert (table["loss"]["nothing"] < 1e-10).all()
    assert (table.drop(columns="nothing", level=1).max(axis=1) > 1e-3).all()


def test_written_texts_by_way_and_scheme(studied):
    table = tables.written_table(studied)
    assert list(table.index) == ["masked", "recomputed", "doubled", "naive"]
    assert table.loc["doubled", ("differing_texts", "alibi")] == 0
    assert table.loc["naive", ("largest_difference", "learned")] > table.loc["masked"].max()


def test_what_is_kept_is_said_of_every_kind(studied):
    table = tables.reuse_table(studied)
    assert list(table.index) == ["decoder", "inductive decoder", "inductive ENTP", "ENTP"]
    assert table.loc["decoder", ("a state ends", "older")] == "2 of 2"
    assert table.loc["inductive decoder", ("a state ends", "present")] == "0 of 2"
    assert table.loc["inductive decoder", ("a token is added", "older")] == ""
    assert table.loc["ENTP", ("a token is added", "memory")] == "1 of 2"


def test_trained_decoders_write_the_same_in_every_way(trained):
    table = tables.trained_ways(trained)
    assert table.loc["parity", "differing_texts"] == 0 and table.loc["parity", "texts"] == 5
    assert table.loc["parity", "recomputed"] < table.loc["parity", "doubled"] < table.loc["parity", "trimmed"]


def test_errors_are_those_of_the_longest_questions(trained):
    table = tables.errors_by_state(trained)
    assert isinstance(table, pd.DataFrame)
    inductive = table[table["arm"] == "inductive decoder"]
    assert list(inductive["state"]) == [1, 2, 3, 4, 5] and list(inductive["beyond"]) == [False] * 3 + [True] * 2
    assert table["error"].between(0, 1).all()
    assert "decoder without" not in set(table["arm"])
