"""Addition: the arms spend what they say, frames pair what belongs together, the published table is
the authors'.
"""

from dataclasses import replace

import pytest
from made_up import record_of

from entp_lab import claims
from entp_lab.budgets import token_forwards
from entp_lab.frames import published
from entp_lib.tasks import Addition, LongAddition, generator_for
from entp_papers.entp.addition import experiment as module
from entp_papers.entp.addition.experiment import ADDITION

AT_AN_END = "errors of both above 0.9 or below 0.01 at every size"


def made_up(tier, error):
    """Make the records of a tier with given test errors by arm and size; nothing is trained."""
    found = []
    for run in ADDITION.plan(tier, 5):
        right = 1 - error(run.labels["arm"], run.labels["n_train"])
        scores = dict(step=10, sequence_accuracy=right, token_accuracy=right)
        test = dict.fromkeys(("last", "lowest_loss", "highest_accuracy"), scores)
        found.append(record_of(run, test=test, seen=dict(sequence_accuracy=1.0)))
    return found


@pytest.mark.parametrize(
    ("largest", "n_train"), [(99, 500), (99, 1000), (99, 2000), (999, 2500), (999, 20_000)]
)
def test_the_ratio_of_answers_is_that_of_the_rows(largest, n_train):
    task = Addition(n_train=n_train, largest=largest)
    assert module.ratio_of(task) == pytest.approx(counted_ratio(task, 4000), rel=0.06)


@pytest.mark.parametrize(
    "task", [Addition(view="windows"), LongAddition(view="windows", window=50)]
)
def test_the_ratio_of_windows_is_exact(task):
    assert module.ratio_of(task) == counted_ratio(replace(task, part="text"), 2)


def counted_ratio(task, rows):
    scored_BT = task.batch(generator_for("cpu", 0), rows).scored_BT
    return token_forwards("entp", scored_BT) / token_forwards("decoder", scored_BT)


@pytest.mark.parametrize(
    ("errors", "expected", "barred"),
    [
        ({1250: (0.5, 0.4), 2500: (0.3, 0.1), 5000: (0.2, 0.1)}, (0.1 + 0.2 + 0.1) / 3, ""),
        ({1250: (0.95, 0.93), 2500: (0.3, 0.1), 5000: (0.009, 0.001)}, 0.2, ""),
        ({1250: (0.95, 0.89), 2500: (0.3, 0.1), 5000: (0.011, 0.001)}, (0.06 + 0.2 + 0.01) / 3, ""),
        ({1250: (0.95, 0.93), 2500: (0.93, 0.92), 5000: (0.009, 0.001)}, 0.038 / 3, AT_AN_END),
    ],
)
def test_overnight_drops_sizes_at_which_both_are_at_an_end(errors, expected, barred):
    def error(arm, n_train):
        return errors[n_train][1 if arm == "entp" else 0]

    records = made_up("overnight", error)
    found = {m.claim: m for m in module.measure(records)}
    best = found["F5-best"]
    assert best.values == pytest.approx([expected] * 5)
    assert best.excluded_because == barred
    # the longer decoder is stored beside them, and stands among no row's records
    arms = {r.name: r.labels["arm"] for r in records}
    assert {arms[name] for m in found.values() for name in m.records} == {"decoder", "entp"}


def test_the_papers_sizes_are_all_compared():
    scores = module.scores(made_up("paper", lambda *_: 0.95))
    assert len(module.comparable(scores)) == len(scores)


def test_the_claimed_values_are_those_of_the_tables():
    stated = claims.reference_claims().set_index("id")["paper_value"]
    small = published("entp", "addition").query("model == 'small'").assign(seed=0)
    small["arm"] = small["architecture"]
    for claim, form in (("F5-addition", "reversed"), ("F11-addition", "plain")):
        gap = module.pooled(module.gaps(small[small["format"] == form]))
        assert gap.to_numpy() == pytest.approx([stated[claim]], abs=1e-4)
    lengths = published("entp", "addition_lengths").query("checkpoint.str.startswith('last')")
    last = lengths.groupby("architecture")["error"].mean()
    assert last["decoder"] - last["entp"] == pytest.approx(stated["F6-length"], abs=1e-4)
