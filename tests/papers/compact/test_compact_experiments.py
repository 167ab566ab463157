"""Measurements of memory, graphs and lengths follow from their records."""

import pytest
from made_up import record_of

from entp_lab.frames import select
from entp_lab.store import RecordError
from entp_papers.compact import capacity, knowledge, lengths


def test_runs_that_a_time_limit_cut_off_are_one_line_and_no_verdict():
    sweep = [record_of(run) for run in select(capacity.CAPACITY.plan("quick"), part="sweep")]
    wirings = select(knowledge.GRAPH.plan("quick"), part="wirings")
    assert capacity.measure(sweep) == []
    assert knowledge.measure([record_of(run) for run in wirings]) == []
    assert capacity.same_with_one_layer(sweep) is None
    with pytest.raises(RecordError, match="the part 'largest'"):
        capacity.two_measures(sweep)


def sums(run, trained):
    """Make up a run on sums: ``trained`` of those of the trained length are right, no others.

    Coupled positions have 0.3 more of a longer sum's tokens right than others.
    """
    ahead = 0.3 + 0.001 * run.labels["seed"] if run.labels["positions"] == "coupled" else 0.0
    lengths_tested = [str(digits) for digits in run.config.params["tested_digits"]]
    length_trained = str(run.config.params["trained_digits"])
    accuracy = dict.fromkeys(lengths_tested, 0.0) | {length_trained: trained}
    token_accuracy = dict.fromkeys(lengths_tested, 0.2 + ahead) | {length_trained: 0.9}
    return record_of(run, {"loss": [1.0]}, accuracy=accuracy, token_accuracy=token_accuracy)


@pytest.mark.parametrize(
    ("trained", "coupling", "entp"),
    [
        (0.3, "", ""),
        (
            0.01,
            "trained length not learned: coupled (decoder), learned (decoder)",
            "trained length not learned: coupled (entp), coupled (decoder)",
        ),
    ],
)
def test_a_scheme_is_compared_where_its_training_sums_are_learned(trained, coupling, entp):
    runs = select(lengths.LENGTHS.plan("quick"), format="padded")
    found = {m.claim: m for m in lengths.measure([sums(run, trained) for run in runs])}
    assert found["CT-coupling"].undecided == coupling
    assert found["CT-entp-length"].undecided == entp
    assert found["CT-coupling"].values == pytest.approx([0.3, 0.301, 0.302, 0.303, 0.304])
    assert len(found["CT-entp-length"].values) == 5
