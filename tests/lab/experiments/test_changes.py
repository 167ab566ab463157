"""Changes to an experiment from its notebook: checked strictly, made to every run alike, counted by no claim."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lab import paths
from entp_lab import run_command as launcher
from entp_lab.compare_with_committed import by_tier, committed, committed_comparison
from entp_lab.experiment import Experiment, no_claims
from entp_lab.figures import describe_records, tier_note
from entp_lab.frames import describe
from entp_lab.notebooks import checked_for_all, notebook_paths
from entp_lab.parameters import NotebookParameters, notebook_parameters
from entp_lab.plans import twins
from entp_lab.registry import EXPERIMENTS, build_task
from entp_lab.store import Store
from entp_lab.weights import load_model
from entp_lib.entp import token_forwards
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3
from entp_papers.entp.in_context.experiment import IN_CONTEXT
from entp_papers.entp.in_context.tables import with_quick


def scored(name, tier="quick", **changes):
    """The runs of an experiment with changes, whose names have _ for the first dot."""
    asked = {key.replace("_", ".", 1): value for key, value in changes.items()}
    return EXPERIMENTS[name].runs_for(NotebookParameters(tier=tier, seeds=1, changes=asked))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 14}, r"'length': write it as task.length, model.length or train.length"),
        ({"tsk.length": 14}, r"'tsk.length': must begin with task., model., train."),
        ({"model.widht": 96}, "'model.widht'"),
        ({"model.vocab_size": 96}, r"'model.vocab_size' follows from the task"),
        ({"model.architecture": "entp"}, r"is what is compared, and stays"),
        ({3: 96}, "changes = "),
    ],
)
def test_names_are_checked_with_the_parameters(changes, message):
    with pytest.raises(ConfigError, match=message):
        NotebookParameters(changes=changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_lenght": 14}, r"'lenght'; did you mean 'length'"),
        ({"task_length": "14"}, "length = "),
        ({"model_width": 65}, "width = "),
        ({"train_steps": 0}, "train.steps = "),
        ({"train_max_lr": -1}, r"max_lr"),
        ({"train_steps": 50, "train_warmup_steps": 51}, "train.warmup_steps = "),
        ({"task_order": 2}, r"task.order is what the runs of the experiment differ in \(3, 2\)"),
    ],
)
def test_values_are_checked_before_anything_runs(changes, message):
    with pytest.raises(ConfigError, match=f"^changes: .*{message}"):
        scored("count3", **changes)


@settings(max_examples=12)
@given(st.integers(6, 40), st.integers(1, 4).map(lambda n: 16 * n), st.integers(1, 5000))
def test_every_run_is_changed_alike_and_nothing_else_is(length, width, steps):
    store, runs = scored("count3", task_length=length, model_width=width, train_steps=steps)
    plain = COUNT3.plan("quick", 1)
    assert store.root == paths.results() / "own"
    for before, after in zip(plain, runs, strict=True):
        config, task = after.config, build_task(after.config.task, after.config.task_params)
        assert (task.length, config.model.width, config.steps) == (length, width, steps)
        assert (config.model.max_length, config.model.vocab_size) == (task.length, task.vocab_size)
        assert config.train.warmup_steps <= max(steps, before.config.train.warmup_steps)
        kept = ("max_lr", "batch_size", "eval_sequences")
        assert all(getattr(config.train, n) == getattr(before.config.train, n) for n in kept)
        assert after.labels["changed"].startswith("task.length = ") and before.labels.items() <= after.labels.items()


@pytest.mark.parametrize(
    ("experiment", "tier", "changes"),
    [
        ("count3", "overnight", dict(task_length=20)),
        ("openwebtext", "quick", dict(task_context=64)),
    ],
)
def test_a_decoder_at_equal_compute_keeps_entps_of_the_changed_task(experiment, tier, changes):
    _, runs = scored(experiment, tier=tier, **changes)
    longer = next(run for run in runs if run.labels["arm"] == "longer")
    same = {k: v for k, v in longer.labels.items() if k not in ("arm", "architecture", "changed")}
    entp = next(run for run in runs if run.labels["arm"] == "entp" and same.items() <= run.labels.items())
    spent = {}
    for run in (longer, entp):
        task = build_task(run.config.task, run.config.task_params)
        scored_BT = task.scored_sample()
        each = token_forwards(run.config.model.architecture, scored_BT) / len(scored_BT)
        spent[run.labels["arm"]] = run.config.steps * each
    assert spent["longer"] == pytest.approx(spent["entp"], rel=0.05)


def told(records):
    """``records`` as if they were of changed runs."""
    return [replace(r, labels={**r.labels, "changed": "train.steps = 3"}) for r in records]


def test_no_committed_record_stands_beside_changed_ones():
    """Neither in a section's figure and tables, nor among verdicts, nor where a tier lacks arms of quick."""
    night = COUNT3.stored(Store(), "overnight")
    assert {r.config.tier for r in committed(COUNT3, night)} == {"quick"}
    assert committed(COUNT3, told(night)) == []
    assert {m.tier for m in COUNT3.measurements(night)} == {"overnight", "quick"}  # Count2 ran at quick alone
    assert {m.tier for m in COUNT3.measurements(told(night))} == {"overnight, changed"}
    functions = IN_CONTEXT.stored(Store(), "overnight")
    assert len(with_quick(IN_CONTEXT, functions)) == len(functions) + 20
    assert with_quick(IN_CONTEXT, told(functions)) == told(functions)
    assert list(by_tier(COUNT3, night, ("task",))) == ["overnight", "quick"]
    assert list(by_tier(COUNT3, told(night), ("task",))) == ["overnight"]


def test_a_table_stands_beside_the_committed_result(small_run, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)

    def plan(tier, seeds):
        return twins(small_run(), ("decoder", "entp"), seeds or 2) if tier in ("smoke", "quick") else []

    experiment = Experiment("test", 1, "A test", "99_test", plan, no_claims)
    committed = experiment.collect(NotebookParameters(tier="quick", jobs=1)).complete
    assert committed_comparison(experiment, committed) is None
    asked = NotebookParameters(tier="quick", jobs=1, changes={"task.length": 10, "train.steps": 6})
    sweep = experiment.collect(asked)
    assert (sweep.computed, sweep.reused) == (4, 0) and experiment.collect(asked).reused == 4
    assert {r.config.train.steps for r in sweep.complete} == {6}
    table = committed_comparison(experiment, sweep.complete)
    words = "task.length = 10, train.steps = 6"
    # the records of this experiment say smoke, and smoke is what stands beside them
    rows = [(arm, of) for arm in ("decoder", "entp") for of in ("committed, smoke", words)]
    assert list(table.index) == rows and list(table["runs"]) == [2] * 4
    for text in (describe(sweep.complete), describe_records(sweep.complete)):
        assert f"changed: {words}" in text
    assert tier_note(sweep.complete).endswith(", changed") and "changed" not in tier_note(committed)


def test_the_command_line_refuses_changes_before_a_kernel_starts():
    def planned(only, **changes):
        return launcher.plan(checked_for_all({}, {"changes": changes}, notebook_paths(only)))

    with pytest.raises(ConfigError, match="did you mean 'length'"):
        planned("03", **{"task.lenght": 14})
    with pytest.raises(ConfigError, match="did you mean 'model.width'"):
        planned("06", **{"model.widht": 14})
    with pytest.raises(ConfigError, match="parameter of 02_complexity"):
        planned("02", **{"model.width": 14})
    jobs, in_place = planned("03", **{"task.length": 14})
    assert not in_place and not any(job.settled for job in jobs)


# The parameters of a notebook: of its parameters cell, whatever other cells leave behind.


CELL = 'tier = "best"\nseeds = 0\nfresh = False\njobs = 0\ntime_limit = 0.0\nthreshold = 0.8  # a comment'


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    threshold: float = 0.8


def kernel(*cells):
    """The globals of a kernel that has executed ``cells``."""
    values = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, values)
    return values


def test_what_other_cells_leave_behind_does_not_count():
    """As at a second Run All in one kernel, with the parameters changed."""
    later = 'seed = [4, 41]\nhits = 3\nclaims = "x"'
    values = kernel(CELL, later, CELL.replace("0.8", "0.5"), "%matplotlib inline" and "labels = {}", later)
    assert notebook_parameters(values, Parameters).threshold == 0.5


def test_papermill_s_cell_comes_on_top():
    values = kernel(CELL, '# Parameters\ntier = "quick"\nthreshold = 0.25\n', "x = 1")
    assert notebook_parameters(values, Parameters) == Parameters(tier="quick", threshold=0.25)
    every = "# Parameters\n" + CELL.replace("0.8", "0.1")
    assert notebook_parameters(kernel(CELL, every), Parameters).threshold == 0.1


@pytest.mark.parametrize("cells", [[CELL, "# Parameters\nthresold = 0.5\n"], [CELL.replace("threshold", "thresold")]])
def test_a_misspelt_name_is_named(cells):
    with pytest.raises(ConfigError, match="'thresold'; did you mean 'threshold'"):
        notebook_parameters(kernel(*cells), Parameters)


def test_python_without_checks_is_refused():
    """What a notebook asserts would hold whatever it found."""
    code = "from entp_lab.parameters import NotebookParameters; NotebookParameters()"
    for options, status in ((["-O"], 1), ([], 0)):
        command = [sys.executable, *options, "-c", code]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONOPTIMIZE"}
        done = subprocess.run(command, cwd=paths.root(), env=environment, capture_output=True, text=True)
        assert done.returncode == status and ("PYTHONOPTIMIZE" in done.stderr) == bool(options)


@pytest.mark.parametrize("limit", [-1.0, math.inf, math.nan])
def test_a_time_limit_without_an_end_is_refused(limit):
    with pytest.raises(ConfigError, match="time_limit = "):
        NotebookParameters(time_limit=limit)


# Runs that no tier has, as with more seeds than its own, leave their records apart from the committed ones.


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


def test_a_cut_run_of_ones_own_goes_on_where_it_was(experiment, tmp_path):
    cut = experiment.collect(NotebookParameters(tier="quick", seeds=2, jobs=1, time_limit=1e-6))
    assert [r.status for r in cut.records] == ["partial"] * 2
    assert len(list(tmp_path.glob("own/checkpoints/test/*.safetensors"))) == 2
    assert [r.status for r in experiment.collect(OWN_SEEDS).records] == ["complete"] * 2
    assert not [p for p in tmp_path.rglob("*.safetensors") if "weights" not in p.name]
