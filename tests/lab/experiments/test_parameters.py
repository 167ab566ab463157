"""Parameters of notebooks, checked before anything runs, and runs that no tier has."""

import math
from dataclasses import dataclass, replace

import pytest
from made_up import python, unchanged
from mistakes import refused

from entp_lab import paths
from entp_lab.experiment import Experiment, no_claims, twins
from entp_lab.parameters import NotebookParameters, notebook_parameters
from entp_lab.registry import EXPERIMENTS
from entp_lab.weights import load_model

CELL = """\
tier = "best"
seeds = 0
fresh = False
jobs = 0
time_limit = 0.0
threshold = 0.8  # a comment
"""


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    threshold: float = 0.8


def kernel(*cells):
    """The globals of a kernel that has executed ``cells``."""
    values = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, values)
    return values


def test_a_second_run_all_and_papermills_cell_have_the_new_values():
    again = kernel(CELL, "hits = 3", CELL.replace("0.8", "0.5"), "labels = {}")
    assert notebook_parameters(again, Parameters) == Parameters(threshold=0.5)
    injected = kernel(CELL, '# Parameters\ntier = "quick"\n', "x = 1")
    assert notebook_parameters(injected, Parameters) == Parameters(tier="quick")


def test_a_misspelt_name_is_named():
    with refused("parameter = 'thresold'.*did you mean 'threshold'"):
        notebook_parameters(kernel(CELL, "# Parameters\nthresold = 0.5\n"), Parameters)
    with refused("the parameters cell lacks threshold"):
        notebook_parameters(kernel(CELL.replace("threshold", "thresold")), Parameters)


def test_python_without_checks_is_refused():
    """What a notebook asserts would hold whatever it found. The other tests run with checks."""
    code = "from entp_lab.parameters import NotebookParameters; NotebookParameters()"
    done = python("-O", "-c", code, cwd=paths.root())
    assert done.returncode == 1
    assert "PYTHONOPTIMIZE" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_limit", -1.0),
        ("time_limit", math.inf),
        ("time_limit", math.nan),
        ("seeds", True),
        ("seeds", -1),
        ("fresh", 1),
    ],
)
def test_a_value_that_will_not_do_is_named(name, value):
    with refused(f"{name} = "):
        NotebookParameters(**{name: value})


# Runs that no tier has, as with more seeds than its own, leave their records apart from the
# committed ones.


OWN_SEEDS = NotebookParameters(tier="quick", seeds=2, jobs=1)


def files(folder):
    """Names of the records and weights below a store."""
    found = [*folder.glob("records/*/*.json"), *folder.glob("checkpoints/*/*.weights.safetensors")]
    return sorted(path.name.split(".")[0] for path in found)


@pytest.fixture
def experiment(small_run, results):
    """One with a single seed of its own, in a project's store of the test's."""
    base = small_run(steps=4)

    def plan(tier, seeds):
        return twins(replace(base, tier=tier), ("decoder",), seeds or 1)

    return Experiment("test", 1, "", "", plan, no_claims, tiers=("quick",))


def test_more_seeds_than_a_tier_has_leave_its_records_alone(experiment, tmp_path):
    plain = experiment.collect(NotebookParameters(tier="quick", jobs=1))
    with unchanged(tmp_path / "records"):
        sweep = experiment.collect(OWN_SEEDS)
    assert (len(sweep.complete), sweep.reused) == (2, 1)
    assert [r.labels["seed"] for r in sweep.complete] == [0, 1]
    assert files(tmp_path / "own") == [sweep.complete[1].id] * 2
    assert experiment.collect(OWN_SEEDS).reused == 2
    assert load_model(f"test/{sweep.complete[1].id}")
    assert plain.complete[0].id in files(tmp_path)


def test_what_is_shown_is_said_where_it_is_not_what_the_text_tells_of(experiment, capsys):
    experiment.collect(NotebookParameters(tier="quick", jobs=1))
    assert "tier quick, 1 random seed, 4 steps" in capsys.readouterr().out
    experiment.collect(NotebookParameters(jobs=1))
    assert capsys.readouterr().out == ""
    experiment.collect(OWN_SEEDS)
    assert "the text tells of tier quick, 1 random seed" in capsys.readouterr().out


def test_a_notebooks_seeds_are_not_for_a_grid_of_one_seed():
    grid = EXPERIMENTS["in_context_settings"]
    store, runs = grid.runs_for(NotebookParameters(tier="quick", seeds=2))
    assert runs == grid.plan("quick", 1)
    assert store.root == paths.results()
    assert len(grid.plan("quick", 2)) == 2 * len(runs)  # train --seeds is


def test_a_cut_run_of_ones_own_goes_on_where_it_was(experiment, tmp_path, capsys):
    cut = experiment.collect(NotebookParameters(tier="quick", seeds=2, jobs=1, time_limit=1e-6))
    assert len(cut.cut) == 2
    assert cut.complete == []
    assert "none of 2 runs is complete" in capsys.readouterr().out
    assert len(list(tmp_path.glob("own/checkpoints/test/*.safetensors"))) == 2
    assert len(experiment.collect(OWN_SEEDS).complete) == 2
    assert not [p for p in tmp_path.rglob("*.safetensors") if "weights" not in p.name]
