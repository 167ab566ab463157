"""Runs that no tier has, as with more seeds than its own, leave their records apart from the committed ones."""

import pytest

from entp_lib import paths
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.experiments.plans import twins
from entp_lib.records.loading import load_model
from entp_lib.registry import EXPERIMENTS

OWN_SEEDS = NotebookParameters(tier="quick", seeds=2, jobs=1)


def files(folder):
    """Names of the records and weights below a store."""
    found = [*folder.glob("records/*/*.json"), *folder.glob("checkpoints/*/*.weights.safetensors")]
    return sorted(path.name.split(".")[0] for path in found)


@pytest.fixture
def experiment(small_run, monkeypatch, tmp_path):
    """One with a single seed of its own, in a project's store of the test's."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    base = small_run(steps=4)
    return Experiment("test", 1, "", "", lambda tier, seeds: twins(base, ("decoder",), seeds or 1), no_claims)


def test_more_seeds_than_a_tier_has_leave_its_records_alone(experiment, tmp_path):
    plain = experiment.collect(NotebookParameters(tier="quick", jobs=1))
    before = {path: path.read_bytes() for path in tmp_path.glob("records/*/*")}
    sweep = experiment.collect(OWN_SEEDS)
    assert (sweep.computed, sweep.reused) == (1, 1) and [r.labels["seed"] for r in sweep.complete] == [0, 1]
    assert {path: path.read_bytes() for path in tmp_path.glob("records/*/*")} == before
    assert files(tmp_path / "own") == [sweep.records[1].id] * 2
    assert experiment.collect(OWN_SEEDS).reused == 2
    assert load_model(f"test/{sweep.records[1].id}") and plain.records[0].id in files(tmp_path)


def test_a_notebooks_seeds_are_not_for_a_grid_of_one_seed():
    grid = EXPERIMENTS["in_context_settings"]
    store, runs = grid.runs_for(NotebookParameters(tier="quick", seeds=2))
    assert runs == grid.plan("quick", 1) and store.root == paths.results()
    assert len(grid.plan("quick", 2)) == 2 * len(runs)  # train --seeds is


def test_what_a_tier_has_goes_to_the_project_though_more_is_asked_for(experiment, tmp_path):
    sweep = experiment.collect(OWN_SEEDS)
    assert files(tmp_path) == [sweep.records[0].id] * 2 and files(tmp_path / "own") == [sweep.records[1].id] * 2
    assert experiment.collect(NotebookParameters(tier="quick", jobs=1)).reused == 1


def test_a_record_of_more_seeds_that_lies_with_the_committed_ones_is_used(experiment, tmp_path):
    record = experiment.collect(OWN_SEEDS).records[1]
    path = tmp_path / "own" / "records" / "test" / f"{record.id}.json"
    path.rename(tmp_path / "records" / "test" / path.name)
    assert experiment.collect(OWN_SEEDS).reused == 2 and not path.exists()


def test_a_cut_run_of_ones_own_goes_on_where_it_was(experiment, tmp_path):
    cut = experiment.collect(NotebookParameters(tier="quick", seeds=2, jobs=1, time_limit=1e-6))
    assert [r.status for r in cut.records] == ["partial"] * 2
    assert len(list(tmp_path.glob("own/checkpoints/test/*.safetensors"))) == 1
    assert [r.status for r in experiment.collect(OWN_SEEDS).records] == ["complete"] * 2
    assert not [p for p in tmp_path.rglob("*.safetensors") if "weights" not in p.name]
