"""Count3 held out by multisets: what training has seen is counted exactly, and the runs are those that they repeat."""

import itertools
from dataclasses import replace

import pytest
import torch

from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.counting import count3 as count3_of
from entp_lib.validation import ConfigError
from entp_papers.entp.count3_sets import repeats_study, seen

SMALL = dict(length=6, seed_length=3, symbols=4, held_out=0.3)


def test_all_orders_of_a_seed_lie_on_one_side():
    task = Counting(**SMALL, held_out_by="multiset")
    drawn = {
        side: set(map(tuple, task.seeds(generator_for("cpu", 0), 3000, evaluating=side).sort(1).values.tolist()))
        for side in (False, True)
    }
    assert not drawn[True] & drawn[False] and len(drawn[True] | drawn[False]) == 20  # multisets of 3 from 4
    by_sequence = Counting(**SMALL)
    seeds_BS = torch.tensor(list(itertools.product(range(4), repeat=3)))
    assert not torch.equal(by_sequence.is_held_out(seeds_BS), task.is_held_out(seeds_BS))
    assert by_sequence.is_held_out(seeds_BS).equal(replace(by_sequence, held_out_by="sequence").is_held_out(seeds_BS))
    with pytest.raises(ConfigError, match="held_out_by"):
        Counting(**SMALL, held_out_by="set")


@pytest.mark.parametrize("by", ["sequence", "multiset"])
def test_what_was_seen_is_counted_as_by_hand(by):
    task = Counting(**SMALL, held_out_by=by)
    sides = {True: [], False: []}
    for seed in itertools.product(range(4), repeat=3):
        x = list(seed)
        while len(x) < task.length:
            x.append(count3_of(x))
        sides[bool(task.is_held_out(torch.tensor([seed])))].append(x)
    wanted = {}
    for n in range(task.first_scored, task.length + 1):
        held, trained = ([(tuple(sorted(x[:n])), x[n - 1]) for x in sides[side]] for side in (True, False))
        wanted[n] = sum(state in set(trained) for state in held) / len(held)
    assert seen(task).to_dict() == pytest.approx(wanted)
    assert (wanted[task.first_scored] == 0) == (by == "multiset")


def test_what_has_come_up_is_counted_up_to_the_order_that_changes_nothing():
    """Of seeds of 3 from 20 symbols a state is drawn with probability 2/20³ or, of two equal elements, 1/20³; after N
    draws the share of draws whose state has come up is the mean of 1 - (1 - p)^N, in expectation."""
    trained, total = 4000, 20**3
    states = {2 / total: 20 * 20 * 19 / 2, 1 / total: 20 * 20}
    expected = sum(p * count * (1 - (1 - p) ** trained) for p, count in states.items())
    metrics, curves = repeats_study(dict(length=3, seed_length=3, symbols=20), trained, scored=20_000)
    assert curves == {"n": [3], "seen": [metrics["seen"]]}
    assert metrics["seen"] == pytest.approx(expected, abs=0.015) and expected == pytest.approx(0.62, abs=0.02)
    assert expected - (1 - (1 - 1 / total) ** trained) > 0.2  # what a count of sequences would give
    assert repeats_study(dict(length=3, seed_length=3, symbols=20), 0, scored=10)[0]["seen"] == 0
