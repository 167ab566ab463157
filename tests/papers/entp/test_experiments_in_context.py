"""In-context experiments: arms and budgets, tables against the records by hand, claims, and what the figures draw."""

import dataclasses

import pytest

from entp_lib.experiments import claims
from entp_lib.experiments.budgets import compute_ratio
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.store import Record
from entp_lib.tasks import InContext
from entp_papers.entp.in_context import convergence
from entp_papers.entp.in_context import tables as in_context_tables
from entp_papers.entp.in_context.baselines import baselines_study
from entp_papers.entp.in_context.experiment import (
    CLAIMS,
    EQUAL_FORWARDS,
    IN_CONTEXT,
    IN_CONTEXT_BASELINES,
    IN_CONTEXT_SETTINGS,
    IN_CONTEXT_SPARSE,
    gap,
    measure,
    table,
    task_of,
)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The records of all three experiments at the smoke tier."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENTP_RESULTS", str(tmp_path_factory.mktemp("results")))
        patch.delenv("ENTP_RECORDS", raising=False)
        parameters = NotebookParameters(tier="smoke", jobs=1)
        experiments = (IN_CONTEXT, IN_CONTEXT_SETTINGS, IN_CONTEXT_BASELINES)
        return [e.collect(parameters).complete for e in experiments]


@pytest.fixture
def made_up():
    """A record of a quick run with given final errors and curve; nothing is trained."""

    def make(function="linear", arm="decoder", seed=0, error=0.5, spent=(10, 20, 30), curve=(0.9, 0.7, 0.5)):
        (run,) = [
            run
            for run in IN_CONTEXT.plan("quick", 5)
            if (run.labels["function"], run.labels["arm"], run.labels["seed"]) == (function, arm, seed)
        ]
        config = run.config
        task = InContext(**config.task_params)
        n, scale = task.points, task.normaliser
        scores = {
            "loss": error * scale,
            "position": list(range(1, 2 * n, 2)),
            "loss_by_position": [error * scale] * n,
            "error_by_position": [0.1 * scale] * n,
        }
        curves = {"step": [1, 2, 3], "seconds": [s / 10 for s in spent], "token_forwards": list(spent)}
        curves |= {"loss": [e * scale for e in curve], "train_loss": [error * scale] * 3}
        cost = dict(steps=3, token_forwards=30, train_seconds=3.0, wall_seconds=4.0, peak_memory_bytes=1, device="x")
        return Record("in_context", 1, config, {**scores, "baseline": {}}, curves, cost, labels=run.labels)

    return make


def test_the_papers_token_forwards():
    """20 and 51 for one of a decoder, at 40 and at 101 points."""
    assert compute_ratio(InContext()) == pytest.approx(1600 / 79)
    assert compute_ratio(InContext("tree", points=101)) == pytest.approx(51, abs=0.3)


def test_the_lower_rate_answers_questions_of_its_own():
    """A row of its own, apart from that of Figure 7 whose class it shares."""
    records = []
    for run in IN_CONTEXT_SPARSE.plan("overnight", 0):
        e = {"decoder": 0.5, "entp": 0.3}[run.labels["arm"]] + run.labels["seed"] / 100
        scores = {"loss": e, "position": list(range(1, 12, 2)), "loss_by_position": [e] * 6, "baseline": {}}
        curves = {"step": [10_000, 20_000], "train_loss": [e, e]}
        cost = dict(steps=3, token_forwards=30, train_seconds=3.0, wall_seconds=4.0, peak_memory_bytes=1, device="x")
        records.append(Record("in_context_sparse", 1, run.config, scores, curves, cost, labels=run.labels))
    found = {m.claim: m.values for m in IN_CONTEXT_SPARSE.measure(records)}
    assert found == {"F7-sparse-slower": pytest.approx([0.2] * 5)}
    assert convergence.both_measures(records).index.tolist() == [
        ("overnight", "sparse, lower rate", "decoder − entp"),
    ]


@pytest.mark.parametrize("tier", ["gpu", "paper"])
def test_the_papers_functions_are_the_papers(tier):
    for config in IN_CONTEXT.configs(tier, 1):
        task = InContext(**config.task_params)
        assert (task.dims, task.sparsity, task.hidden, task.depth) == (20, 3, 100, 4)
        assert task.points == (40 if task.function in ("linear", "sparse") else 100)
        last = task.at_step(config.steps)
        assert (last.points, last.used_dims) == (task.points, 20)  # the curriculum ends before the run
        assert task.at_step(config.steps // 2) == dataclasses.replace(last)


def test_errors_are_normalised_and_start_near_one(smoke):
    runs, _, studies = smoke
    found = table(runs)
    assert found["error"].tolist() == pytest.approx([r.metrics["loss"] / task_of(r).normaliser for r in runs])
    assert set(found["function"]) == {"linear", "sparse", "network", "tree"}
    zero = [r.metrics["baseline"]["loss"] / task_of(r).normaliser for r in runs]
    assert sum(zero) / len(zero) == pytest.approx(1, rel=0.2)
    assert found["error"].mean() == pytest.approx(1, rel=0.2)  # hardly trained, all but the guess 0
    models, learners = in_context_tables.by_examples(runs), in_context_tables.learners_by_examples(studies)
    assert sorted(models["examples"].unique()) == sorted(learners["examples"].unique()) == [0, 1, 2, 3]
    per_run = models.groupby(["function", "arm", "seed"])["error"].mean()
    for run in found.itertuples():
        assert per_run[run.function, run.arm, run.seed] == pytest.approx(run.error, rel=1e-4)


def test_excess_is_over_the_learner_on_the_same_prompts(smoke):
    runs, _, studies = smoke
    found = in_context_tables.excess(runs, studies)
    assert found["excess"].notna().all()
    assert set(found[found["function"] == "sparse"]["over"]) == {"least squares", "Lasso, α = 0.01"}
    row = found[(found["function"] == "linear") & (found["arm"] == "entp") & (found["seed"] == 1)].iloc[0]
    (study,) = [r for r in studies if task_of(r).function == "linear" and r.config.data_seed == 1]
    theirs = study.curves["standard | least squares"]
    ours = table(runs).query("function == 'linear' and arm == 'entp' and seed == 1")["error"].item()
    assert row["over"] == "least squares" and row["excess"] == pytest.approx(ours - sum(theirs) / len(theirs))
    tree = in_context_tables.references(studies, "tree")
    means = in_context_tables.learners_by_examples(studies).query("function == 'tree'").groupby("arm")["error"].mean()
    assert tree == (means.idxmin(),)


def test_shifts_show_every_distribution(smoke):
    runs, _, studies = smoke
    found = in_context_tables.shifted(runs, studies)
    by_row = found.sort_index()
    counts = [("standard", 3), ("scaled", 3), ("orthogonal", 1), ("orthogonal", 3), ("noisy", 3)]
    assert found.loc["linear"].index.tolist() == counts and len(found) == 17
    exact = by_row.loc[("linear", "standard", 3), "its error"]  # two dimensions, three examples
    assert exact == pytest.approx(0, abs=1e-3)
    assert by_row.loc[("tree", "scaled", 3), ["decoder", "entp"]].notna().all()
    ours = in_context_tables.by_examples(runs, "orthogonal").query("function == 'linear' and arm == 'entp'")
    errors = ours.groupby("examples")["error"].mean()
    assert by_row.loc[("linear", "orthogonal"), "entp"].to_dict() == pytest.approx({1: errors[1], 3: errors[3]})
    learners = in_context_tables.learners_by_examples(studies, "noisy").query("function == 'linear' and examples == 3")
    errors = learners.groupby("arm")["error"].mean()
    best = by_row.loc[("linear", "noisy", 3)]
    assert (best["reference"], best["its error"]) == (errors.idxmin(), pytest.approx(errors.min()))


def test_least_squares_knows_nothing_of_an_orthogonal_query():
    """Its error is E[y²] with fewer examples than dimensions, and 0 on the second block, whose x's are in the span."""
    params = dict(function="linear", dims=4, points=8)
    _, curves = baselines_study(params, prompts=4000, costly_prompts=1, seed=0)
    errors = curves["orthogonal | least squares"]
    assert errors[:4] == pytest.approx([1] * 4, abs=0.1) and max(errors[4:]) < 1e-6


def test_the_setting_of_the_runs_is_held_against_the_best(smoke):
    runs, settings, _ = smoke
    found = in_context_tables.above_best(settings, runs)
    by_hand = {}
    for r in settings:
        scales = r.config.model.position_std, r.config.model.input_std
        by_hand.setdefault(r.config.model.architecture, {})[scales] = r.metrics["loss"] / task_of(r).normaliser
    for architecture, errors in by_hand.items():
        row = found.loc[architecture]
        assert row.tolist() == pytest.approx([errors[0.5, 0.3], min(errors.values()), row["difference"]])
        assert row["difference"] == pytest.approx(errors[0.5, 0.3] - min(errors.values())) and row["difference"] >= 0
    elsewhere = [r for r in settings if r.config.model.input_std == 0.02]
    assert in_context_tables.above_best(elsewhere, runs)["setting of the runs"].isna().all()


def test_claims_are_paired_differences_of_their_arms(made_up):
    errors = {"decoder": 0.5, "entp": 0.3, "hybrid": 0.2, EQUAL_FORWARDS: 0.25}
    records = [made_up(arm=a, seed=s, error=e + s / 100) for a, e in errors.items() for s in range(5)]
    found = {m.claim: m for m in measure(records)}
    expected = {"F7-linear": 0.2, "F7-hybrid": 0.3}
    assert set(found) == set(expected)
    for claim, measured in found.items():
        assert measured.values == pytest.approx([expected[claim]] * 5, rel=1e-4) and len(measured.records) == 10
        assert not measured.paper_settings
    assert gap(table(records), "linear", "decoder", "entp").index.tolist() == list(range(5))
    judged = claims.judge(list(found.values()), only_measured=True).set_index("id")["verdict"]
    assert judged.to_dict() == {"F7-linear": "same direction", "F7-hybrid": "hybrid ahead"}
    assert measure([]) == [] and set(CLAIMS) <= set(claims.reference_claims()["id"])


def test_models_that_have_learned_nothing_are_not_equal(made_up):
    """Where neither arm is below 0.9, nothing is said; one that is makes a difference worth judging."""

    def verdict(decoder, entp):
        records = [made_up("tree", a, s, e) for a, e in (("decoder", decoder), ("entp", entp)) for s in range(5)]
        return claims.judge(measure(records), only_measured=True)["verdict"].tolist()

    assert verdict(0.91, 0.92) == ["uninformative"] and verdict(0.5, 0.5) == ["same direction"]
    assert verdict(0.8, 0.95) == ["not reproduced"] and verdict(0.95, 0.8) == ["same direction"]
