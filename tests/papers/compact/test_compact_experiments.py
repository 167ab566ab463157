"""The ten experiments: every planned run passes its study's checks, and measurements follow from
their records.
"""

import pandas as pd
import pytest
from made_up import record_of, sound

from entp_lab.frames import select
from entp_lab.report import ledger
from entp_lab.store import Record, RecordError
from entp_papers.compact import capacity, knowledge, lengths
from entp_papers.compact.capacity import CAPACITY
from entp_papers.compact.lengths import LENGTHS


def records_of(experiment, tier, contents=lambda run: ({}, {}), **labels):
    """Labelled records of a tier's runs with these labels; ``contents``: metrics and curves of a
    run.
    """
    chosen = [run for run in experiment.plan(tier, 0) if not labels or select([run], **labels)]
    made = [
        Record(experiment.name, 1, run.config, *contents(run), {}, "complete") for run in chosen
    ]
    return experiment.labelled(made, chosen)


def sums(experiment, tier, share, tokens=lambda labels, factor: 0.5, **labels):
    """Make up records: ``share(labels, factor)`` of whole sums right and so many ``tokens``.

    The factor is over the trained digits.
    """

    def contents(run):
        trained, tested = (run.config.params[name] for name in ("trained_digits", "tested_digits"))
        both = [
            {str(n): f(run.labels, n / trained) for n in sorted(tested, key=str)}
            for f in (share, tokens)
        ]
        return dict(zip(("accuracy", "token_accuracy"), both, strict=True)), {"loss": [1.0]}

    return records_of(experiment, tier, contents, **labels)


def test_runs_that_a_time_limit_cut_off_are_one_line_and_no_verdict():
    sweep = records_of(CAPACITY, "quick", part="sweep")
    triplets = records_of(knowledge.GRAPH, "quick", part="wirings")
    assert capacity.measure(sweep) == knowledge.measure(triplets) == []
    assert capacity.same_with_one_layer(sweep) is None
    with pytest.raises(RecordError, match="the part 'largest'"):
        capacity.two_measures(sweep)


def at_trained(labels, factor):
    return float(factor == 1)


@pytest.mark.parametrize(("trained", "why"), [(0.3, ""), (0.01, "trained length not learned: ")])
def test_a_scheme_is_compared_where_its_training_sums_are_learned(trained, why):
    def tokens(labels, factor):
        return (
            0.9
            if factor == 1
            else 0.2 + (labels["positions"] == "coupled") * (0.3 + 0.001 * labels["seed"])
        )

    records = sums(
        LENGTHS, "quick", lambda _, factor: trained * (factor == 1), tokens, format="padded"
    )
    found = {m.claim: m for m in lengths.measure(records)}
    assert found["CT-coupling"].undecided == why + (
        "coupled (decoder), learned (decoder)" if why else ""
    )
    assert found["CT-entp-length"].undecided == why + (
        "coupled (entp), coupled (decoder)" if why else ""
    )
    assert found["CT-coupling"].values == pytest.approx([0.3 + 0.001 * seed for seed in range(5)])
    assert len(found["CT-entp-length"].values) == 5


def test_a_pair_of_a_higher_tier_hides_no_five_of_quick(store):
    """A notebook's verdicts are the ledger's, unless somebody asked for fewer runs."""
    quick, night = (sums(LENGTHS, tier, at_trained) for tier in ("quick", "overnight"))
    for r in (*quick, *night):
        store.save(sound(r))
    found = {m.claim: (m.tier, len(m.values)) for m in LENGTHS.measurements(night, store)}
    assert found["CT-coupling"] == ("overnight", 5)
    assert found["CT-relative"] == found["CT-none"] == ("quick", 5)
    rows = ledger(store).set_index("id").loc[list(found)]
    assert rows["tier"].to_dict() == {claim: tier for claim, (tier, _) in found.items()}
    fewer = [r for r in night if r.labels["seed"] < 3]
    asked = {m.claim: (m.tier, len(m.values)) for m in LENGTHS.measurements(fewer, store)}
    assert asked["CT-coupling"] == ("overnight", 3)
    assert asked["CT-relative"] == ("overnight", 1)


def test_slopes_and_gains_are_taken_run_by_run():
    """Capacity that halves as the length doubles has a slope of -1, and four times an identity's a
    gain of 2.
    """
    shapes = [
        dict(width=w, n_heads=1, length=n, run=r, capacity=(r + 1) * 640 / n)
        for w in (8, 16)
        for n in (8, 16, 32)
        for r in (0, 1)
    ]
    assert capacity.slopes_by_length(pd.DataFrame(shapes)).tolist() == pytest.approx([-1, -1])
    ways = [
        dict(width=w, way=way, run=r, capacity=(r + 1) * (400 if way == "trained" else 100))
        for w in (8, 16)
        for way in ("trained", "identity")
        for r in (0, 1)
    ]
    assert capacity.gains_of_feed_forward(
        pd.DataFrame(ways)
    ).to_numpy().ravel().tolist() == pytest.approx([2] * 4)


def test_the_papers_training_decides_two_rows():
    records = [
        record_of(run, capacity=[100, 110, 120, 130, 140])
        for run in capacity.CAPACITY_TRAININGS.plan("overnight")
    ]
    found = {m.claim: m for m in capacity.measure_trainings(records)}
    assert found["CT-length"].values == pytest.approx([0] * 5) and found[
        "CT-feed-forward"
    ].values == pytest.approx([0] * 5)
    used = {record.name: record.labels for record in records}
    rests_on = [used[name] for m in found.values() for name in m.records]
    assert {(row["scored"], row["head_width"]) for row in rests_on} == {("every", 128)}
