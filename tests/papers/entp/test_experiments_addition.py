"""Addition: the arms spend what they say, frames pair what belongs together, the published table is
the authors'.
"""

import dataclasses

import pytest

from entp_lab import claims
from entp_lab.budgets import token_forwards
from entp_lab.frames import published
from entp_lab.store import Record
from entp_lib.tasks import Addition, LongAddition, generator_for
from entp_papers.entp.addition import experiment as module
from entp_papers.entp.addition.experiment import ADDITION

RULES = ("last", "lowest_loss", "highest_accuracy")


@pytest.fixture(scope="module")
def made_up():
    """Return a function that makes the records of a tier with given test errors; nothing is
    trained.
    """

    def make(
        experiment,
        tier,
        error,
        seeds=5,
        groups=("2 digits, 0 carries", "2 digits, 1 carries"),
        known=0.9,
    ):
        found, known = [], {"sequence_accuracy": known}
        for run in experiment.plan(tier, seeds):
            config, arm = run.config, run.labels["arm"]
            test = {}
            for rule in RULES:
                wrong = error(arm, rule, config.model_seed, config.task_params)
                split = {g: {"sequences": 1000, "right": round(1000 * (1 - wrong))} for g in groups}
                test[rule] = {
                    "step": 10,
                    "sequence_accuracy": 1 - wrong,
                    "token_accuracy": 1 - wrong / 2,
                }
                test[rule] |= {"loss": 1.0, "groups": split}
            curves = {"step": [5, 10], "token_forwards": [50, 100], "seconds": [1.0, 2.0]}
            curves["sequence_accuracy"] = [0.1, 0.2]
            cost = {"token_forwards": 100, "train_seconds": 2.0 if arm == "decoder" else 6.0}
            found.append(
                Record(
                    experiment.name,
                    experiment.version,
                    config,
                    {
                        "test": test,
                        "seen": {"sequence_accuracy": 0.75 if arm == "entp" else 1.0},
                        **known,
                    },
                    curves,
                    cost,
                    labels=run.labels,
                )
            )
        return found

    return make


@pytest.mark.parametrize("largest", [99, 999])
def test_the_ratio_of_answers_is_that_of_the_rows(largest):
    for n_train in (500, 1000, 2000) if largest == 99 else (2500, 20_000):
        task = Addition(n_train=n_train, largest=largest)
        scored = task.batch(generator_for("cpu", 0), 4000).scored_BT
        ratio = token_forwards("entp", scored) / token_forwards("decoder", scored)
        assert module.ratio_of(task) == pytest.approx(ratio, rel=0.06)


@pytest.mark.parametrize(
    "task", [Addition(view="windows"), LongAddition(view="windows", window=50)]
)
def test_the_ratio_of_windows_is_exact(task):
    scored = dataclasses.replace(task, part="text").batch(generator_for("cpu", 0), 2).scored_BT
    assert module.ratio_of(task) == token_forwards("entp", scored) / token_forwards(
        "decoder", scored
    )


@pytest.mark.parametrize(
    ("errors", "expected", "barred"),
    [
        ({1250: (0.5, 0.4), 2500: (0.3, 0.1), 5000: (0.2, 0.1)}, (0.1 + 0.2 + 0.1) / 3, ""),
        ({1250: (0.95, 0.93), 2500: (0.3, 0.1), 5000: (0.009, 0.001)}, 0.2, ""),
        ({1250: (0.95, 0.89), 2500: (0.3, 0.1), 5000: (0.011, 0.001)}, (0.06 + 0.2 + 0.01) / 3, ""),
        (
            {1250: (0.95, 0.93), 2500: (0.93, 0.92), 5000: (0.009, 0.001)},
            (0.02 + 0.01 + 0.008) / 3,
            "errors of both above 0.9 or below 0.01 at every size",
        ),
    ],
)
def test_overnight_drops_sizes_at_which_both_are_at_an_end(made_up, errors, expected, barred):
    def error(arm, rule, seed, params):
        return errors[params["n_train"]][1 if arm == "entp" else 0]

    records = made_up(ADDITION, "overnight", error)
    found = {m.claim: m for m in module.measure(records)}
    assert (
        found["F5-best"].values == pytest.approx([expected] * 5)
        and found["F5-best"].excluded_because == barred
    )
    paper = module.scores(made_up(ADDITION, "paper", lambda *_: 0.95))
    assert len(module.comparable(paper)) == len(paper)


def test_a_comparison_rests_on_the_runs_of_its_two_arms(made_up):
    """The longer decoder is stored beside them, and stands among no row's records."""
    records = made_up(ADDITION, "overnight", lambda *_: 0.5)
    found = {m.claim: m for m in module.measure(records)}
    arms = {r.name: r.labels["arm"] for r in records}
    assert set(arms.values()) == {"decoder", "entp", "longer"}
    assert {arms[name] for m in found.values() for name in m.records} == {"decoder", "entp"}


def test_the_claimed_values_are_those_of_the_tables():
    stated = claims.reference_claims().set_index("id")["paper_value"]
    small = (
        published("entp", "addition")
        .query("model == 'small'")
        .rename(columns={"architecture": "arm"})
    )
    for claim, form in (("F5-addition", "reversed"), ("F11-addition", "plain")):
        gap = module.pooled(module.gaps(small[small["format"] == form].assign(seed=0)))
        assert gap.to_numpy() == pytest.approx([stated[claim]], abs=1e-4)
    lengths = published("entp", "addition_lengths").query("checkpoint.str.startswith('last')")
    last = lengths.groupby("architecture")["error"].mean()
    assert last["decoder"] - last["entp"] == pytest.approx(stated["F6-length"], abs=1e-4)
