"""Count3 held out by multisets: what training has seen is counted exactly, and the runs are those that they repeat."""

import itertools
from dataclasses import replace

import pandas as pd
import pytest
import torch

from entp_lib import paths
from entp_lib.experiments import claims
from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.counting import IN_OTHER_ORDERS
from entp_lib.tasks.counting import count3 as count3_of
from entp_lib.validation import ConfigError
from entp_papers.entp import count3
from entp_papers.entp.count3 import COUNT3_SETS, COUNT3_UNSEEN_SETS
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


def test_the_committed_splits_by_sequence_keep_next_to_nothing_apart():
    assert seen(Counting(**count3.TIERS["overnight"].task)).min() > 0.99
    with pytest.raises(ConfigError, match="too many to be numbered"):
        seen(Counting(length=40, seed_length=2, symbols=40))


def test_what_a_split_by_sequence_is_scored_on_stands_beside_every_verdict():
    tables = [pd.read_csv(paths.results() / f"{name}.csv") for name in ("claims", "questions")]
    table = pd.concat(tables).set_index("id")["caveats"].astype(object).fillna("")
    assert IN_OTHER_ORDERS in table["F2-tokens"] and IN_OTHER_ORDERS in table["F2-unseen"]
    assert IN_OTHER_ORDERS in table["L-4-0"] and IN_OTHER_ORDERS in table["F2-fails"]
    others = [i for i in table.index if i.startswith(("F2-sets", "F2-unseen-sets", "F2-long", "T2-", "F7-"))]
    assert others and not table[others].str.contains(IN_OTHER_ORDERS).any()
    assert Counting(**SMALL).caveat == IN_OTHER_ORDERS and Counting().caveat == ""


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        (COUNT3_SETS, {"F2-sets": "ENTP ahead"}),
        (COUNT3_UNSEEN_SETS, {"F2-unseen-sets": "ENTP ahead", "F2-unseen-sets-fair": "decoder ahead"}),
    ],
)
def test_every_row_is_measured_by_its_arm(experiment, expected, ended):
    ends = {"decoder": 0.80, "entp": 0.92, "longer": 0.96}
    measured = experiment.measure(ended(experiment, ends, 0.22))
    rows = claims.judge(measured, only_measured=True).set_index("id")
    assert rows["verdict"].to_dict() == expected and experiment.measure([]) == []
    assert rows["our_value"].iloc[0] == pytest.approx(0.12) and (rows["records"].str.split().str.len() == 10).all()
