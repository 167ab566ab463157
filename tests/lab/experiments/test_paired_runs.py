"""What notebooks call: planned pairs have the ids of committed runs, and a task of one's own needs
no store.
"""

import re
from dataclasses import dataclass, replace

import pytest
import torch
from conftest import BRIEF
from mistakes import refused

import entp_lab as lab
from entp_lab import cli, paired_runs, paths, runs
from entp_lab.configs import RunConfig, config_id
from entp_lab.experiment import TWINS
from entp_lab.registry import EXPERIMENTS, build_task
from entp_lib import TrainConfig, tasks
from entp_lib.tasks import Batch, Task

COUNT3 = tasks.Counting(length=10, seed_length=4, symbols=10, held_out=0.2)
SHAPE = {"n_layers": 3, "n_heads": 4, "width": 64}
TRAIN = TrainConfig(
    1200, 64, 3e-3, 3e-4, 100, eval_every=50, eval_sequences=512, final_eval_sequences=4096
)
SHORT = replace(TRAIN, steps=4, **BRIEF)


@pytest.fixture(scope="module")
def committed():
    """The committed pairs of Count3, asked for by their settings."""
    return lab.run(lab.pairs(COUNT3, SHAPE, TRAIN, experiment="count3"))


def test_pairs_written_by_hand_are_the_committed_runs_of_count3(committed):
    known = [
        r
        for r in EXPERIMENTS["count3"].committed()
        if r.labels["task"] == "count3" and r.labels["arm"] in TWINS
    ]
    assert {r.id for r in committed.records} == {r.id for r in known}
    assert len(known) == 10
    assert {r.labels["task"] for r in committed.records} == {"count3"}
    assert "records of count3" in committed.note
    last = [r.config for r in known if r.config.model_seed == 4]
    assert "records of count3" in lab.run(last).note


@pytest.mark.parametrize("name", ["count3", "match3", "addition", "in_context", "openwebtext"])
def test_a_task_a_model_and_schedules_give_the_ids_of_planned_runs(name):
    """Also where the task has values that its plan leaves out, and models have learning rates of
    their own.
    """
    for tier in ("quick", "overnight"):
        for config in EXPERIMENTS[name].configs(tier, 1)[:6]:
            if isinstance(config, RunConfig) and not config.start_from:
                task = build_task(config.task, config.task_params)
                kind = config.model.architecture
                found = lab.pairs(
                    task,
                    config.model,
                    {kind: config.train},
                    [kind],
                    config.model_seed + 1,
                    name,
                    tier,
                )
                assert config_id(config, 1) in {config_id(c, 1) for c in found}


def test_other_settings_are_trained_into_own_records(results, capsys, monkeypatch):
    configs = lab.pairs(COUNT3, SHAPE, SHORT, seeds=2, experiment="count3")
    runs = lab.run(configs, jobs=1)
    said = capsys.readouterr().out
    assert "your own runs" in said
    assert "4 steps" in said
    assert "2 random seeds" in said
    assert len(list(results.glob("own/records/count3/*.json"))) == 4
    assert not list(results.glob("records/count3/*.json"))
    table = runs.paired("loss", "entp", "decoder")
    assert list(table.index) == [0, 1, "mean"]
    assert "low" not in table
    assert "other code" not in said
    monkeypatch.setattr(paired_runs, "sources", lambda modules: "changed")
    lab.run(configs, jobs=1)
    assert "other code" in capsys.readouterr().out
    assert cli.main(["records", str(results / "own")]) == 0


def test_curves_have_a_row_a_run_and_evaluation(committed):
    curves = committed.curves()
    scores = committed.scores()
    assert list(curves.columns[:4]) == ["model", "seed", "step", "multiply_adds"]
    assert len(scores) == 10
    assert len(curves) == sum(len(r.curves["step"]) for r in committed.records)
    last = curves.groupby(["model", "seed"], sort=False)["multiply_adds"].max()
    assert last.tolist() == scores["multiply_adds"].tolist()


@dataclass(frozen=True)
class Alternate(Task):
    """Two symbols in turn."""

    length: int = 6
    vocab_size: int = 3

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        first_B1 = torch.randint(self.vocab_size, (size, 1), generator=generator)
        return Batch.of_text((first_B1 + torch.arange(self.length + 1)) % self.vocab_size)


def test_a_task_of_ones_own_is_trained_here_and_stored_nowhere(results, capsys):
    train = replace(SHORT, steps=20, eval_every=10)
    runs = lab.compare(
        Alternate(), seeds=2, model={"n_layers": 1, "n_heads": 1, "width": 8}, train=train
    )
    assert not list(results.rglob("*.json"))
    said = capsys.readouterr().out
    assert said.startswith("Multiply-adds of a training step: decoder ") and "(1.0 ×)" in said
    axes = runs.plot("loss").axes
    assert [len(ax.lines) for ax in axes] == [2, 2]
    assert len(runs.scores()) == 4
    assert (runs.curves()["multiply_adds"] > 0).all()
    # one layer: the two models are one function, and runs of one seed share weights and batches
    assert runs.paired("loss", "entp", "decoder")["difference"].abs().max() < 1e-5


def test_the_page_on_the_library_compares_two_models_in_one_call(results, monkeypatch):
    """Its runs take seconds and start no other process."""
    monkeypatch.setattr(runs, "worker_processes", None)
    page = (paths.repository() / "docs/library.md").read_text(encoding="utf-8")
    example = next(
        code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "entp_lab" in code
    )
    scope = {}
    exec(compile(example, "library.md", "exec"), scope)
    assert len(scope["runs"].scores()) == 4


def test_what_cannot_be_compared_is_named(committed):
    twice = replace(committed, records=2 * committed.records, step_costs=2 * committed.step_costs)
    for ask, message in {
        lambda: lab.run(lab.pairs(Alternate(), SHAPE, TRAIN)): "not a task of the project",
        lambda: lab.pairs(COUNT3, SHAPE, TRAIN, seeds=0): "seeds = 0",
        lambda: lab.pairs(COUNT3, {"widht": 3}, TRAIN): "model.'widht'; did you mean 'width'",
        lambda: committed.plot("accuracy"): "score = 'accuracy': these runs have",
        lambda: lab.pairs(
            COUNT3, SHAPE, TRAIN, experiment="cuont3"
        ): "no experiment 'cuont3'; did you mean count3",
        lambda: committed.paired(
            "accuracy", "entp", "decoder"
        ): "score = 'accuracy': these runs have",
        lambda: twice.paired("loss", "entp", "decoder"): "several settings of a model",
        lambda: twice.plot("loss"): "several settings of a model",
    }.items():
        with refused(message):
            ask()


def test_a_mistake_in_ones_own_task_keeps_its_traceback():
    class Broken(Alternate):
        def batch(self, generator, size, evaluating=False):
            return self.lenght

    with pytest.raises(AttributeError, match="lenght"):
        lab.compare(Broken(), steps=2)


def test_another_text_in_a_file_is_another_task(tmp_path):
    ids = set()
    for text in ("one text", "another text"):
        path = tmp_path / "novel.txt"
        path.write_text(text)
        task = tasks.Text(str(path), split="tail", context=4)
        ids |= {config_id(config, 1) for config in lab.pairs(task, SHAPE, SHORT, seeds=1)}
    assert len(ids) == 4
