"""Trained models by the name of their run, and what goes on from them."""

import shutil

import pytest
import torch

from entp_lib import __main__ as cli
from entp_lib import paths
from entp_lib.records.execution import run
from entp_lib.records.loading import load_model, load_run
from entp_lib.records.store import Store
from entp_lib.reports.generation import continued
from entp_lib.training.weights import save_tensors
from entp_lib.validation import ConfigError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with a finished Count3 run of width 16, and the run's record."""
    from entp_lib.config import ModelConfig, RunConfig, TrainConfig

    task = dict(length=8, seed_length=3, symbols=8)
    model = ModelConfig("entp", n_layers=2, n_heads=2, width=16, vocab_size=8, max_length=8)
    train = TrainConfig(steps=2, batch_size=8, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8)
    store = Store(tmp_path_factory.mktemp("results"), read_only=False)
    return store, run(RunConfig("count3", "smoke", "counting", task, model, train), 1, store=store)


def test_a_run_is_loaded_by_its_name_its_beginning_and_its_file(trained):
    store, record = trained
    models = [load_model(f"count3/{record.id}", store), load_model(f"count3/{record.id[:4]}", store)]
    path = store.weights_path("count3", record.id)
    models += [load_model(str(path)), load_model(path)]
    for model in models:
        assert not model.training and model.cfg == record.config.model
        for p, q in zip(model.parameters(), models[0].parameters(), strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("name", "said"),
    [("count3", "write experiment/id"), ("count3/ffff", "no run count3/ffff"), ("x/ffff", "weights here: count3/")],
)
def test_a_run_that_is_not_there_is_named(trained, name, said):
    with pytest.raises(ConfigError, match=said):
        load_model(name, trained[0])


def test_missing_weights_name_the_command_that_makes_them(trained, tmp_path):
    store = Store(tmp_path, read_only=False)
    store.save(trained[1])
    with pytest.raises(ConfigError, match="python -m entp_lib train count3 --tier smoke"):
        load_model(f"count3/{trained[1].id}", store)


def test_a_checkpoint_is_told_from_damaged_weights(trained, tmp_path):
    """Whoever followed the advice to delete it would lose a run's progress."""
    path = tmp_path / "run.safetensors"
    save_tensors(path, {"a": torch.zeros(3)}, {"config": "{}", "state": "{}"})
    with pytest.raises(ConfigError, match="holds no weights of a finished run") as error:
        load_model(str(path))
    assert "delete" not in str(error.value)


def test_a_clone_makes_weights_beside_its_records_and_finds_them_there(trained, tmp_path, monkeypatch):
    """Training anew writes over the records that are committed; so it goes to a store of its own."""
    monkeypatch.setattr(paths, "results", lambda: tmp_path)
    Store(tmp_path, read_only=False).save(trained[1])
    name = f"count3/{trained[1].id}"
    with pytest.raises(
        ConfigError, match=f"train count3 --tier smoke --seeds 1 --run {trained[1].id} --results .*own"
    ) as error:
        load_model(name)
    assert "--fresh" not in str(error.value)
    own = Store(tmp_path / "own", read_only=False)
    own.save(trained[1])
    weights = own.weights_path("count3", trained[1].id)
    weights.parent.mkdir(parents=True)
    shutil.copy(trained[0].weights_path("count3", trained[1].id), weights)
    assert load_model(name).cfg == trained[1].config.model


def test_the_first_example_of_the_docs_runs_in_a_fresh_clone(monkeypatch, tmp_path, capsys):
    """With the records and weights that git keeps, and nothing else."""
    kept = paths.root() / "results" / "weights" / "checkpoints"
    assert 0 < sum(path.stat().st_size for path in kept.rglob("*") if path.is_file()) < 10**6
    for name in ("records", "weights"):
        (tmp_path / name).symlink_to(paths.root() / "results" / name)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    text = (paths.root() / "docs" / "starting.md").read_text(encoding="utf-8")
    section = text.split("## A model of a finished run")[1].split("    .venv/")[0]
    exec("\n".join(line[4:] for line in section.splitlines() if line.startswith("    ")), {})
    (entp, high), (decoder, low) = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (entp, decoder) == ("entp", "decoder") and float(high) > 0.95 and float(low) < 0.85


def test_the_models_that_git_keeps_answer_a_prompt(monkeypatch, tmp_path, capsys):
    """As the docs say, wherever results are kept; ENTP is right and the decoder wrong."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    prompt = ["--prompt", "8 3 9 0", "--tokens", "1", "--temperature", "0"]
    assert f'generate match3/d0f9 --prompt "{prompt[1]}" --tokens 1' in (paths.root() / "docs/starting.md").read_text()
    for name, answer in (("d0f9", "1"), ("7629", "0")):
        assert cli.main(["generate", f"match3/{name}", *prompt]) == 0
        assert capsys.readouterr().out == f"8 3 9 0 {answer}\n"
    for wrong, said in (
        (["8 11", "--tokens", "1"], "'11': this model's tokens"),
        (["8"], "--tokens 100: match3's models"),
    ):
        assert cli.main(["generate", "match3/d0f9", "--prompt", *wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_sequence_goes_on_beyond_the_models_length_and_says_so(trained, caplog):
    config, model = load_run(f"count3/{trained[1].id}", trained[0])
    continued(config, model, "3 1 4", 6, temperature=0)
    assert not caplog.messages
    text = continued(config, model, "3 1 4", 12, temperature=0)
    assert "the model's length of 8 is reached after 6 new tokens" in caplog.text
    ids = [int(part) for part in text.split()]
    assert len(ids) == 15 and ids[:3] == [3, 1, 4] and max(ids) < 8
    assert continued(config, model, "3 1 4", 5, temperature=1.0, seed=1) == continued(
        config, model, "3 1 4", 5, temperature=1.0, seed=1
    )
    assert text.startswith(continued(config, model, "3 1 4", 4, temperature=0))


def test_the_command_prints_what_comes_next_and_bad_prompts_are_one_line(trained, monkeypatch, capsys):
    store, record = trained
    monkeypatch.setenv("ENTP_RESULTS", str(store.root))
    bad = {
        "3 9": "'9'",
        "three": "'three'",
        "": "prompt",
        "3 --temperature -1": "temperature",
        "3 --tokens 0": "--tokens",
    }
    for prompt, named in bad.items():
        given, *options = prompt.split(" -", 1)
        options = f"-{options[0]}".split() if options else []
        assert cli.main(["generate", f"count3/{record.id}", "--prompt", given, *options]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert named in line
    assert cli.main(["generate", f"count3/{record.id}", "--prompt", "3 1 4", "--tokens", "2"]) == 0
    assert capsys.readouterr().out.startswith("3 1 4 ")
