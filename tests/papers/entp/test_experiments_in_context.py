"""In-context experiments: arms and budgets, tables against the records by hand, claims, and what
the figures draw.
"""

import pytest
from made_up import record_of

from entp_lab.claims import judge
from entp_lab.frames import select
from entp_papers.entp.in_context.experiment import IN_CONTEXT, flatness, measure, task_of


def fake(arm="decoder", seed=0, function="linear", tier="overnight", error=0.5, course=(1.0,) * 10):
    """Make a record of a planned run with an error at every point and a course, over E[y²]."""
    (run,) = select(IN_CONTEXT.plan(tier), arm=arm, seed=seed, function=function)
    scale = task_of(record_of(run)).normaliser
    last = run.config.train.steps
    every = last // len(course)
    steps = [*range(every, every * len(course), every), last]
    return record_of(
        run,
        dict(step=steps, train_loss=[e * scale for e in course]),
        loss=error * scale,
        loss_by_position=[error * scale] * 6,
        position=[1, 3, 5, 7, 9, 11],
        baseline={},
    )


def pairs(function, tier, **by_arm):
    """Make five pairs; ``by_arm``: what is given to ``fake`` for the decoder, and for ENTP."""
    records = []
    for place, arm in enumerate(("decoder", "entp")):
        given = {name: values[place] for name, values in by_arm.items()}
        records += [fake(arm, seed, function, tier, **given) for seed in range(5)]
    return records


@pytest.mark.parametrize(
    ("claim", "tier", "errors", "verdict"),
    [
        ("F10-tree", "quick", (0.91, 0.92), "uninformative"),
        ("F10-tree", "quick", (0.5, 0.5), "same direction"),
        ("F10-tree", "quick", (0.8, 0.95), "not reproduced"),
        ("F10-tree", "quick", (0.95, 0.8), "same direction"),
        # 1/3 is the least possible, and 0.01 the margin
        ("F7-linear", "overnight", (0.342, 0.341), "uninformative"),
        ("F7-linear", "overnight", (0.355, 0.341), "same direction"),
        ("F7-linear", "overnight", (0.355, 0.354), "not reproduced"),
    ],
)
def test_models_that_learned_nothing_or_all_there_is_are_not_equal(claim, tier, errors, verdict):
    """Where neither arm is below 0.9, nothing is said; one that is makes a difference worth
    judging.
    """
    _, function = claim.split("-")
    found = judge(measure(pairs(function, tier, error=errors)), only_measured=True)
    assert found.set_index("id")["verdict"][claim] == verdict


def falling(by):
    """Make a course whose last fifth is lower than the fourth by so much, after three fifths high
    up.
    """
    return [0.9] * 6 + [0.4 + by] * 2 + [0.4] * 2


@pytest.mark.parametrize(
    ("falls", "flat"),
    [
        ((0.0, 0.019), True),
        ((0.0, 0.021), False),  # no seed for itself
        ((0.0099,), True),
        ((0.0101,), False),
        ((-0.3,), True),  # a rise is no fall
    ],
)
def test_flat_is_a_mean_fall_over_seeds_of_at_most_a_hundredth(falls, flat):
    records = [fake(seed=seed, course=falling(by)) for seed, by in enumerate(falls)]
    found = flatness(records)
    assert found["fall"].tolist() == pytest.approx(falls)
    assert set(found["flat"]) == {flat}


@pytest.mark.parametrize(
    ("fall", "verdict", "why"),
    [(0.0, "same direction", ""), (0.02, "uninformative", "too little trained to tell")],
)
def test_arms_on_the_way_are_not_shown_to_be_level(fall, verdict, why):
    """Figure 10 calls ENTP competitive: of where two curves end, those that still fall tell
    nothing.
    """
    records = pairs("tree", "quick", course=(falling(0.0), falling(fall)))
    (row,) = judge(measure(records), only_measured=True).to_dict("records")
    assert (row["id"], row["verdict"], row["why"]) == ("F10-tree", verdict, why)
