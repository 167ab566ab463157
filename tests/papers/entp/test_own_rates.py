"""Runs of each model at its own constant learning rate: what is chosen, and what is compared."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from entp_lab.claims import EQUAL, OPEN, judged_by_rule
from entp_lab.frames import select
from entp_lab.runs import run as compute
from entp_papers.entp.own_rates import (
    LINEAR_OWN_RATES,
    TEXT_OWN_RATES,
    TRIAL_SEED,
    Measure,
    chosen_rates,
    compared,
)


@pytest.fixture
def course(small_run, store):
    """Return a function that makes a record whose loss falls so, an evaluation every ten steps."""
    record = compute(small_run(), 1, store=store)

    def make(arm, losses, seed=0, rate=1e-3):
        steps = [10 * k for k in range(1, len(losses) + 1)]
        curves = {"step": steps, "loss": losses, "token_accuracy": [1 - loss for loss in losses]}
        return replace(record, curves=curves, labels={"arm": arm, "seed": seed, "rate": rate})

    return make


@pytest.fixture
def entp(course):
    return course("entp", [0.9, 0.6, 0.5, 0.4])  # ends at 0.5, the mean of three


@pytest.fixture
def late(course):
    return course("operations", [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])


def test_a_decoder_that_does_not_come_so_far_counts_with_its_last_step(course, entp):
    row = compared([entp, course("operations", [0.9] * 8)]).loc[0]
    assert row["steps"] == 80 / 40
    assert not row["reached"]


def test_that_a_decoder_came_too_short_is_no_equality(course, entp):
    runs = [entp, course("operations", [0.9] * 8)]
    found = {each.claim: each for each in Measure("own")(runs)}
    assert found["own-cost"].cut and not found["own-steps"].cut
    claim = dict(kind="question", rule="", positive="", negative="", low=-0.1, high=0.1, margin=0.2)
    assert judged_by_rule(claim, found["own-cost"]) == OPEN
    assert judged_by_rule(claim, replace(found["own-cost"], values=[0] * 5)) == OPEN
    assert judged_by_rule(claim, replace(found["own-cost"], values=[0] * 5, cut=False)) == EQUAL


def test_equal_curves_take_equal_steps(course):
    pair = [course(arm, [0.9, 0.5, 0.5, 0.5, 0.5, 0.5]) for arm in ("entp", "operations")]
    assert compared(pair)["steps"].tolist() == [1]


def test_leads_are_means_over_as_many_steps_of_both_models(course, late):
    """Though ENTP is evaluated twice as often, and its loss still falls."""
    often = course("entp", [0.8, 0.7, 0.6, 0.5, 0.4])
    often.curves["step"][:] = [60, 65, 70, 75, 80]
    assert compared([often, late]).loc[0, "equal steps"] == pytest.approx(0.3 - 0.6)


def test_speed_is_a_logarithm_and_levels_are_the_decoders_and_entps(course, entp, late):
    trial = course("entp", [0.1] * 4, TRIAL_SEED)
    measure = Measure("F7-own", level=dict(floor=1.0, ceiling=0.0, distance=0.1))
    found = {m.claim: m for m in measure([entp, late, trial])}
    assert found["F7-own-speed"].values == pytest.approx([math.log(1.5)])
    scores = [level.score for level in found["F7-own-operations"].levels]
    assert scores == pytest.approx([0.3, 0.5])
    assert not list(measure([trial]))


def test_of_rates_within_a_hundredth_of_the_best_loss_the_lowest_is_chosen(course):
    trials = [
        course("entp", [0.9, loss, loss, loss], TRIAL_SEED, rate)
        for rate, loss in ((3e-4, 0.505), (1e-3, 0.5), (3e-3, 0.7))
    ]
    assert chosen_rates(trials) == {"entp": 3e-4}
    assert chosen_rates(trials[1:]) == {"entp": 1e-3}


@pytest.mark.parametrize("experiment", [TEXT_OWN_RATES, LINEAR_OWN_RATES])
def test_decoders_compared_at_equal_steps_have_the_rate_that_the_trial_chooses_there(experiment):
    records = experiment.committed("overnight")
    last = max(run.config.train.steps for run in select(records, arm="entp"))
    early = []
    for run in records:
        curves = pd.DataFrame(run.curves)
        early.append(replace(run, curves=curves[curves["step"] <= last].to_dict("list")))
    (measured,) = (m for m in experiment.measure(records) if m.claim.endswith("-equal"))
    used = {run.labels["rate"] for run in records if run.name in measured.records}
    chosen = chosen_rates(early)
    assert used == {chosen["entp"], chosen["operations"]}


@pytest.mark.parametrize(("rate", "lead"), [(3e-4, -0.1), (1e-3, -0.2)])
def test_pairs_are_compared_with_the_decoder_of_the_rate_that_is_asked_for(course, rate, lead):
    records = [
        course("entp", [0.5] * 4),
        course("operations", [0.4] * 8, rate=3e-4),
        course("operations", [0.3] * 8, rate=1e-3),
    ]
    assert compared(records, rate=rate).loc[0, "equal steps"] == pytest.approx(lead)
