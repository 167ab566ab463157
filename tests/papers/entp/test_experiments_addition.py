"""Addition: the arms spend what they say, frames pair what belongs together, the published table is
the authors'.
"""

import pytest
from made_up import record_of

from entp_lab import claims
from entp_lab.frames import published
from entp_papers.entp.addition import experiment as module

SIZES = (1250, 2500, 5000)
AT_AN_END = "errors of both above 0.9 or below 0.01 at every size"


def made_up(tier, error):
    """Make the records of a tier with given test errors by arm and size; nothing is trained."""
    found = []
    for run in module.ADDITION.plan(tier, 5):
        right = 1 - error(run.labels["arm"], run.labels["n_train"])
        scores = dict(sequence_accuracy=right, token_accuracy=right)
        rules = ("last", "lowest_loss", "highest_accuracy")
        found.append(record_of(run, test=dict.fromkeys(rules, scores)))
    return found


@pytest.mark.parametrize(
    ("decoder", "entp", "expected", "barred"),
    [
        ((0.5, 0.3, 0.2), (0.4, 0.1, 0.1), 0.4 / 3, ""),
        ((0.95, 0.3, 0.009), (0.93, 0.1, 0.001), 0.2, ""),
        ((0.95, 0.3, 0.011), (0.89, 0.1, 0.001), 0.27 / 3, ""),
        ((0.95, 0.93, 0.009), (0.93, 0.92, 0.001), 0.038 / 3, AT_AN_END),
    ],
)
def test_overnight_drops_sizes_at_which_both_are_at_an_end(decoder, entp, expected, barred):
    def error(arm, n_train):
        errors = entp if arm == "entp" else decoder
        return errors[SIZES.index(n_train)]

    records = made_up("overnight", error)
    found = {m.claim: m for m in module.measure(records)}
    best = found["F5-best"]
    assert best.values == pytest.approx([expected] * 5)
    assert best.excluded_because == barred
    # the longer decoder is stored beside them, and stands among no row's records
    arms = {r.name: r.labels["arm"] for r in records}
    for measured in found.values():
        assert {arms[name] for name in measured.records} == {"decoder", "entp"}


def test_the_papers_sizes_are_all_compared():
    scores = module.scores(made_up("paper", lambda *_: 0.95))
    assert len(module.comparable(scores)) == len(scores)


def test_the_claimed_values_are_those_of_the_tables():
    stated = claims.reference_claims()["paper_value"]
    small = published("entp", "addition").query("model == 'small'").assign(seed=0)
    small["arm"] = small["architecture"]
    for claim, form in (("F5-addition", "reversed"), ("F11-addition", "plain")):
        gap = module.gaps(small[small["format"] == form]).mean(axis=1)
        assert gap.to_numpy() == pytest.approx([stated[claim]], abs=1e-4)
    lengths = published("entp", "addition_lengths").query("checkpoint.str.startswith('last')")
    last = lengths.groupby("architecture")["error"].mean()
    assert last["decoder"] - last["entp"] == pytest.approx(stated["F6-length"], abs=1e-4)
