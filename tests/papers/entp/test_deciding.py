"""Runs that decide: where they end, and ratios of steps that are read at equal loss."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import record_of
from mistakes import refused

from entp_lab.experiment import planned
from entp_lab.runs import run
from entp_lib.tasks import Counting, generator_for
from entp_papers.entp import count3_steps


def test_a_run_ends_at_its_loss(small_run, store):
    losses = run(small_run(), 1, store=store).curves["loss"]
    bound = (losses[0] + min(losses)) / 2
    cut = run(small_run(stop_loss=bound), 1, store=store)
    last = next(i for i, loss in enumerate(losses) if loss <= bound)
    assert cut.status == "complete"
    assert cut.curves["loss"] == losses[: last + 1]
    with refused("stop_loss"):
        small_run(stop_loss=-1.0)


@pytest.fixture
def course(small_run):
    """Return a function that makes a run whose loss falls from 3 by 1 in ``factor`` * 3000 steps,
    to ``points`` evaluations.
    """

    def make(arm, factor, points=59):
        task = dict(length=16, seed_length=8, symbols=24)
        config = small_run(arm, 0, dict(vocab_size=24, max_length=16), task)
        share = np.arange(1, points + 1) / 100
        curves = dict(step=share * 10_000 * factor, loss=3 - share / 0.3, token_accuracy=share)
        curves = {name: values.tolist() for name, values in curves.items()}
        return record_of(planned(config), curves)

    return make


def test_ratios_of_steps_are_read_at_equal_loss(course):
    runs = [course("decoder", 2), course("entp", 1)]
    ratios = count3_steps.step_ratios(runs, 3.0, 2.0, (0.3, 0.6, 5.0))
    assert ratios.tolist() == pytest.approx([2, 2, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("decoder", "entp", "ratio", "parts"),
    [
        ((2, 59), (1, 59), "2.00", "yes"),
        ((1, 59), (1, 59), "1.00", "no"),
        # 3200, 4700 and 6200 (means of three) over its 1000
        ((2, 59), (1, 10), "at most 4.53", "open"),
        ((1, 59), (1, 20), "at most 1.22", "no"),  # 1600 of both, then 2350 and 3100 over its 2000
        ((2, 20), (1, 59), "2.00", "yes, to 50% alone"),  # a decoder that comes half way alone
        ((2, 10), (1, 59), "–", "open"),  # one that does not
    ],
)
def test_a_setting_parts_by_the_mean_ratio_or_what_it_can_be_at_most(
    course, decoder, entp, ratio, parts
):
    row = count3_steps.gate_row([course("decoder", *decoder), course("entp", *entp)], 3.0, 2.0)
    assert row["mean ratio"] == ratio
    assert row["pulls ahead"] == parts


def test_the_ratio_of_the_authors_log_grows():
    half, bound, beyond = count3_steps.authors_ratios((0.5, 1.0, 2.0))
    assert 1.5 < half < bound < beyond < 3


def test_drawn_prefixes_are_a_few_of_the_scored_ones_and_leave_the_sequences_alone():
    whole = Counting(length=24, seed_length=8, symbols=24)
    few = replace(whole, drawn=4)
    every = whole.batch(generator_for("cpu", 7), 500)
    some = few.batch(generator_for("cpu", 7), 500)
    assert torch.equal(every.inputs_BT, some.inputs_BT)
    assert some.scored_BT.sum(1).eq(4).all()
    assert not (some.scored_BT & ~every.scored_BT).any()
    assert some.scored_BT[:, 8:].any(0).all()
    tested = few.batch(generator_for("cpu", 7), 5, evaluating=True)
    assert torch.equal(tested.scored_BT, every.scored_BT[:5])  # evaluation scores all of them
