"""What notebooks call: planned pairs have the ids of committed runs, and a task of one's own needs no store."""

import shutil
from dataclasses import dataclass, replace

import pytest
import torch

import entp_lab as lab
from entp_lab import paths
from entp_lab.configs import RunConfig, config_id
from entp_lab.plans import TWINS
from entp_lab.registry import EXPERIMENTS, build_task
from entp_lib import TrainConfig, tasks
from entp_lib.tasks import Batch, Task
from entp_lib.validation import ConfigError

COUNT3 = tasks.Counting(length=10, seed_length=4, symbols=10, held_out=0.2)
SHAPE = {"n_layers": 3, "n_heads": 4, "width": 64}
SCORED = {"eval_every": 50, "eval_sequences": 512, "final_eval_sequences": 4096}
TRAIN = TrainConfig(1200, 64, 3e-3, 3e-4, 100, **SCORED)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    return tmp_path


def test_pairs_written_by_hand_are_the_committed_runs_of_count3():
    configs = lab.pairs(COUNT3, SHAPE, TRAIN, experiment="count3")
    assert len(configs) == 10
    ids = {config_id(config, 1) for config in configs}
    committed = lab.committed("count3", arm=TWINS, task="count3")
    assert ids == {record.id for record in committed.records}
    runs = lab.run(configs)
    assert {record.id for record in runs.records} == ids and not runs.committed


@pytest.mark.parametrize("name", ["count3", "match3", "addition", "in_context", "openwebtext"])
def test_a_task_a_model_and_schedules_give_the_ids_of_planned_runs(name):
    """Also where the task has values that its plan leaves out, and models have learning rates of their own."""
    experiment = EXPERIMENTS[name]
    for tier in ("quick", "overnight"):
        planned = [run.config for run in experiment.plan(tier, 1) if isinstance(run.config, RunConfig)]
        for config in planned[:6]:
            if config.start_from:
                continue
            task = build_task(config.task, config.task_params)
            architecture, seeds = config.model.architecture, config.model_seed + 1
            found = lab.pairs(task, config.model, {architecture: config.train}, [architecture], seeds, name, tier)
            assert config_id(config, 1) in {config_id(c, 1) for c in found}


def test_other_settings_are_trained_into_own_records_beside_the_committed(results, capsys):
    train = replace(TRAIN, steps=4, eval_every=2, eval_sequences=8, final_eval_sequences=8)
    configs = lab.pairs(COUNT3, SHAPE, train, seeds=2, experiment="count3")
    runs = lab.run(configs, jobs=1)
    said = capsys.readouterr().out
    assert "A step takes" in said and "your own runs" in said and "4 steps" in said and "2 random seeds" in said
    assert len(list((results / "own" / "records" / "count3").glob("*.json"))) == 4
    assert not (results / "records" / "count3").exists() or not list((results / "records" / "count3").glob("*.json"))
    lab.run(configs, jobs=1)
    assert "A step takes" not in capsys.readouterr().out
    table = runs.paired("loss", "entp", "decoder")
    assert list(table.index) == [0, 1, "mean"] and "low" not in table


def test_curves_have_a_row_a_run_and_evaluation():
    runs = lab.committed("count3", arm=TWINS, task="count3")
    curves, scores = runs.curves(), runs.scores()
    assert list(curves.columns[:4]) == ["model", "seed", "step", "multiply_adds"]
    assert len(scores) == 10 and len(curves) == sum(len(r.curves["step"]) for r in runs.records)
    last = curves.groupby(["model", "seed"])[["multiply_adds"]].max().reset_index()
    merged = last.merge(scores, on=["model", "seed"])
    assert (merged["multiply_adds_x"] == merged["multiply_adds_y"]).all()


def test_the_mean_difference_has_an_interval_around_it():
    table = lab.committed("count3", arm=TWINS, task="count3").paired("token_accuracy", "entp", "decoder")
    mean = table.loc["mean"]
    assert mean["low"] < mean["difference"] < mean["high"]
    assert mean["difference"] == pytest.approx((table["entp"] - table["decoder"])[:-1].mean())
    with pytest.raises(ConfigError, match="score = 'accuracy': these runs have"):
        lab.committed("count3", arm="entp", task="count3").paired("accuracy", "entp", "decoder")


@dataclass(frozen=True)
class Alternate(Task):
    """Two symbols in turn."""

    length: int = 6
    vocab_size: int = 3

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        first_B1 = torch.randint(self.vocab_size, (size, 1), generator=generator)
        return Batch.of_text((first_B1 + torch.arange(self.length + 1)) % self.vocab_size)


def test_a_task_of_ones_own_is_trained_here_and_stored_nowhere(results, capsys):
    train = TrainConfig(20, batch_size=8, max_lr=1e-2, warmup_steps=2, eval_every=10, eval_sequences=8)
    train = replace(train, final_eval_sequences=8)
    runs = lab.compare(Alternate(), seeds=2, model={"n_layers": 1, "n_heads": 1, "width": 8}, train=train)
    assert "A step takes" in capsys.readouterr().out
    assert not list(results.rglob("*.json"))
    assert len(runs.scores()) == 4 and (runs.curves()["multiply_adds"] > 0).all()
    # one layer: the two models are one function, and runs of one seed share weights and batches
    gaps = runs.paired("loss", "entp", "decoder")["difference"]
    assert gaps.abs().max() < 1e-5
    assert runs.plot(x="multiply_adds").get_xlabel()


def test_what_cannot_be_compared_is_named():
    with pytest.raises(ConfigError, match="not a task of the project"):
        lab.pairs(Alternate(), SHAPE, TRAIN)
    with pytest.raises(ConfigError, match="seeds = 0"):
        lab.pairs(COUNT3, SHAPE, TRAIN, seeds=0)
    with pytest.raises(ConfigError, match="there is no experiment 'cuont3'; did you mean count3"):
        lab.pairs(COUNT3, SHAPE, TRAIN, experiment="cuont3")


def test_a_mistake_in_ones_own_task_keeps_its_traceback():
    class Broken(Alternate):
        def batch(self, generator, size, evaluating=False):
            return self.lenght

    with pytest.raises(AttributeError, match="lenght"):
        lab.compare(Broken(), steps=2)


def test_committed_records_are_drawn_beside_ones_own(results):
    shutil.copytree(paths.root() / "results" / "records" / "count3", results / "records" / "count3")
    train = replace(TRAIN, steps=4, eval_every=2, eval_sequences=8, final_eval_sequences=8)
    runs = lab.run(lab.pairs(COUNT3, SHAPE, train, seeds=1, experiment="count3"), jobs=1)
    assert len(runs.records) == 2 and {record.config.model.architecture for record in runs.committed} == set(TWINS)
    labels = [text.get_text() for text in runs.plot().get_legend().get_texts()]
    assert sum("committed" in label for label in labels) == 2 and len(labels) == 4
