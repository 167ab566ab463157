"""The text experiment: arms differ in what they say, minima and paired differences are those of the curves."""

import dataclasses
import hashlib
import inspect
import json
import math

import numpy as np
import pytest
import torch
from made_up import sound

from entp_lib.__main__ import build_parser, main
from entp_lib.config import RunConfig
from entp_lib.corpora.tokenizers import restore
from entp_lib.experiments.budgets import training_operations
from entp_lib.experiments.frames import cost_per_run, published, summary
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.models.entp import token_forwards
from entp_lib.records import execution
from entp_lib.records.store import Record, Store
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports import own_data
from entp_lib.tasks import Text, build_task
from entp_lib.training import loop
from entp_lib.training.weights import trained_model
from entp_lib.validation import ConfigError
from entp_papers.entp.language import counts, shakespeare, tables
from entp_papers.entp.language.shakespeare import SHAKESPEARE

OPENWEBTEXT = EXPERIMENTS["openwebtext"]


def models(tier, seeds):
    """The planned runs of models, without the counts."""
    return [run for run in OPENWEBTEXT.plan(tier, seeds) if isinstance(run.config, RunConfig)]


@pytest.mark.parametrize("tier", ["smoke", "quick", "gpu"])
def test_the_longer_decoder_spends_what_entp_spends(tier):
    """Counted on the positions that ENTP's batches draw."""
    configs = [run.config for run in models(tier, 1)]
    (longer,) = (run.config for run in models(tier, 1) if run.labels["arm"] == tables.EQUAL_FORWARDS)
    entp = next(c for c in configs if c.model.architecture == "entp")
    task = build_task(entp.task, entp.task_params)
    generator = torch.Generator().manual_seed(0)
    each = token_forwards("entp", task.wanted(generator, 2000, evaluating=False)) / 2000
    assert longer.train.batch_size == entp.train.batch_size
    assert longer.train.steps * task.context == pytest.approx(entp.train.steps * each, rel=0.02)


def test_the_papers_settings_are_those_of_table_8():
    config = OPENWEBTEXT.configs("paper", 1)[0]
    task, shape, train = build_task(config.task, config.task_params), config.model, config.train
    assert (shape.n_layers, shape.n_heads, shape.width, shape.vocab_size) == (6, 6, 384, 50_304)
    assert (train.batch_size, train.warmup_steps, train.decay_steps) == (32, 2000, 600_000)
    assert (train.max_lr, train.min_lr, train.betas, train.weight_decay) == (6e-4, 6e-5, (0.9, 0.95), 0.1)
    assert task == Text("openwebtext", tokenizer="gpt2", split="nanogpt", held_out=0.0005, context=128)


def made_up(run, losses, train=(3.0, 2.0, 1.0)):
    """A record with given validation losses, the last of them on more windows too; nothing is trained."""
    entp = run.labels["arm"] == "entp"
    curves = {
        "step": [10, 20, 30],
        "token_forwards": [1000, 2000, 3000] if entp else [100, 200, 300],
        "seconds": [4.0, 8.0, 12.0] if entp else [1.0, 2.0, 3.0],
        "train_loss": list(train),
        "loss": list(losses),
    }
    metrics = {"loss": losses[-1], "baseline": {"loss": 3.0}, "position": [1, 2]}
    metrics |= {"loss_by_position": [losses[-1] + 1, losses[-1] - 1 + entp]}
    metrics |= {"samples": [{"prompt": p, "continuation": f"{p} {run_name(run.labels)}"} for p in "pq"]}
    return Record("openwebtext", 1, run.config, metrics, curves, {}, labels=run.labels)


def run_name(labels):
    return f"{labels['arm']}, {labels['schedule']}"


@pytest.fixture
def records():
    """One seed of quick: ENTP 0.2 nats ahead at its lowest, behind at the end, 0.1 behind with the rates swapped."""
    curves = {
        (tables.TABLE_8, "decoder"): (3.0, 2.0, 2.4),
        (tables.TABLE_8, "entp"): (3.2, 1.8, 2.5),
        (tables.SWAPPED, "decoder"): (3.0, 2.5, 2.0),
        (tables.SWAPPED, "entp"): (3.0, 2.5, 2.1),
        (tables.TABLE_8, tables.EQUAL_FORWARDS): (2.0, 1.5, 1.4),
    }
    train = {(tables.SWAPPED, "entp"): (3.0, 0.7, 1.5)}
    keys = [(run.labels["schedule"], run.labels["arm"]) for run in models("quick", 1)]
    return [
        made_up(run, curves[key], train.get(key, (3.0, 2.0, 1.0)))
        for run, key in zip(models("quick", 1), keys, strict=True)
    ]


def test_minima_and_differences_are_those_of_the_curves(records):
    table = tables.minima(records).set_index(["schedule", "arm"])
    row = table.loc[(tables.TABLE_8, "entp")]
    assert (row["lowest validation loss"], row["last validation loss"]) == (1.8, 2.5)
    assert (row["lowest training loss"], row["last training loss"]) == (1.0, 1.0)
    assert row["lowest validation perplexity"] == math.exp(1.8) and row["unigram loss"] == 3.0
    smooth = tables.minima(records, smoothed=2).set_index(["schedule", "arm"]).loc[(tables.TABLE_8, "entp")]
    assert smooth["lowest validation loss"] == pytest.approx(2.15)
    found = {name: values.tolist() for name, values in tables.gaps(records).items()}
    assert list(found) == list(tables.COMPARISONS)
    assert found["as published: rates swapped, lowest"] == pytest.approx([-0.1])
    assert found["Table 8, lowest"] == pytest.approx([0.2])
    assert found["Table 8, last"] == pytest.approx([-0.1])
    assert found["equal token-forwards, last"] == pytest.approx([-1.1])
    assert tables.gaps(records, smoothed=2)["Table 8, lowest"].tolist() == pytest.approx([2.2 - 2.15])


def test_each_claim_is_measured_on_its_own_arms(records):
    measured = {m.claim: m for m in OPENWEBTEXT.measure(records)}
    values = {name: m.values[0] for name, m in measured.items()}
    assert values == pytest.approx({"T3-loss": -0.1, "T3-train": 0.3, "T3-last": -0.1})
    assert [len(m.records) for m in measured.values()] == [2, 2, 2]
    assert {m.remark for m in measured.values()} == {"both trained on 8 of 32 positions"}
    assert not any(m.paper_settings for m in measured.values())
    assert OPENWEBTEXT.measure([]) == []


def test_both_ranges_of_prefixes_stand_side_by_side(records):
    """Positions 6 to 10: ENTP 0.5 behind up to 7, 0.1 ahead from 8 on; lengths count alike, whatever the totals say."""
    for r in records:
        late = {"entp": 0.9, "decoder": 1.0, tables.EQUAL_FORWARDS: 0.7}[r.labels["arm"]]
        early = 2.5 if r.labels["arm"] == "entp" else 2.0
        r.metrics.update(position=[6, 7, 8, 9, 10], loss_by_position=[early, early, late - 0.1, late, late + 0.1])
    (run,) = (run for run in OPENWEBTEXT.plan("quick", 1) if run.labels["arm"] == tables.COUNTS)
    counted = {"loss": 9.0, "position": [6, 7, 8, 9, 10], "loss_by_position": [3.0, 4.0, 2.0, 2.0, 5.0]}
    metrics = {name: counted for name in counts.ORDERS}
    counted_too = [*records, Record("openwebtext", 1, run.config, metrics, {}, {}, labels=run.labels)]
    table = tables.losses_by_range(counted_too)
    assert list(table.index) == [(n, b) for n in ("6 to 7", "8 to 10") for b in ("equal steps", "equal token-forwards")]
    assert table["ENTP"].tolist() == pytest.approx([2.5, 2.5, 0.9, 0.9])
    assert table["decoder"].tolist() == pytest.approx([2.0, 2.0, 1.0, 0.7])
    assert table["decoder − ENTP"].tolist() == pytest.approx([-0.5, -0.5, 0.1, -0.2])
    assert table["bigram"].tolist() == table["trigram"].tolist() == [3.5, 3.5, 3.0, 3.0]
    plain = tables.losses_by_range([r for r in records if r.labels["arm"] != tables.EQUAL_FORWARDS])
    assert [budget for _, budget in plain.index] == ["equal steps"] * 2 and "bigram" not in plain
    long = {m.claim: m.values for m in OPENWEBTEXT.measure(counted_too)}
    assert long["T3-long"] == pytest.approx([0.1])


def test_the_published_tables_agree_with_each_other():
    """Perplexities are those of the losses, Table 3 is the mean of Table 7, and the log of seed 1 explains both."""
    table = published("entp", "openwebtext")
    for part in ("train", "validation"):
        expected = table[f"{part}_loss"].map(math.exp)
        assert table[f"{part}_perplexity"].tolist() == pytest.approx(expected.tolist(), abs=0.11)
        losses = table.set_index(["source", "value", "architecture"])[f"{part}_loss"]
        for name in ("decoder", "entp"):
            seeds = losses["Table 7", "minimum", name]
            assert losses["Table 3", "mean of minima", name] == pytest.approx(seeds.mean(), abs=6e-4)
            logged = losses["authors' run log", "minimum of means over 50 evaluations", name]
            assert logged.item() == pytest.approx(seeds.iloc[0], abs=2e-3)


def test_shakespeare_is_shown_beside_the_logs(store):
    """A run that exists has its lowest loss and the difference; one that does not is left blank."""
    config = SHAKESPEARE.configs("paper")[0]
    assert (config.model.architecture, config.model.n_layers, config.model.width) == ("decoder", 3, 192)
    curves = {"step": [100, 200], "train_loss": [2.5, 2.0], "loss": [1.6, 1.65]}
    store.save(sound(Record("shakespeare", 1, config, {"loss": 1.7}, curves, {})))
    table = shakespeare.beside_authors(store)
    row = table.loc["decoder"]
    assert (row["ours"], row["our step"], row["authors"]) == (1.6, 100, 1.617)
    assert row["difference"] == pytest.approx(-0.0171) and table.loc["entp"].isna()[["ours", "difference"]].all()
    none = Store(store.root / "none", read_only=True)
    assert shakespeare.beside_authors(none)["ours"].isna().all()
    theirs, both = shakespeare.courses(none), shakespeare.courses(store)
    assert set(theirs["of"]) == {"authors"} and len(both) == len(theirs) + 2
    logged = theirs.query("architecture == 'decoder'").set_index("step")["train_loss"]
    gaps = [2.5 - logged[100], 2.0 - logged[200]]
    found = shakespeare.training_differences(store, after=0).loc["decoder"]
    assert found.tolist() == pytest.approx([sum(gaps) / 2, max(map(abs, gaps)), 2])
    assert shakespeare.training_differences(none).empty
    lowest = theirs.groupby("architecture")["validation_loss"].min()
    assert lowest["decoder"] == pytest.approx(row["authors"], abs=1e-4)
    assert both[both["of"] == "ours"][["step", "train_loss", "validation_loss"]].to_numpy().tolist() == [
        [100, 2.5, 1.6],
        [200, 2.0, 1.65],
    ]


def test_the_smoke_tier_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    whole = OPENWEBTEXT.collect(NotebookParameters(tier="smoke", seeds=1)).complete
    complete = tables.trained(whole)
    assert (len(whole), len(complete)) == (6, 5)
    counts_of = tables.counted_losses(whole).iloc[0]
    assert counts_of["bigram"] < counts_of["unigram"] == pytest.approx(counts_of["unigram, longer prefixes"], rel=0.1)
    assert tables.minima(complete)["last training loss"].lt(math.log(256)).all()
    assert len({r.metrics["corpus"]["checksum"] for r in complete}) == 1
    shown = summary(complete)
    assert len(cost_per_run(shown, by="arm")) == 3 and shown["baseline_token_accuracy"].nunique() == 1
    assert set(tables.loss_by_position(complete)["position"]) == set(range(1, 17))
    assert len(tables.samples(complete)) == 5 * 3
    spent = shown[shown["schedule"] == tables.TABLE_8].set_index("arm")["token_forwards"]
    assert spent["entp"] == pytest.approx(spent[tables.EQUAL_FORWARDS], rel=0.1)


# A text of one's own


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    path = tmp_path / "own.txt"
    path.write_text("".join(f"line {i} of a text\n\n" for i in range(200)))
    return path


def test_published_values_are_those_of_shakespeare(own_file):
    decoder, entp = own_data.text_configs(str(own_file), **own_data.PUBLISHED)
    (theirs, _) = SHAKESPEARE.configs("paper")
    typed = vars(build_parser().parse_args(["text", "x"]))
    defaults = {
        n: p.default for n, p in inspect.signature(own_data.text_configs).parameters.items() if p.kind == p.KEYWORD_ONLY
    }
    assert defaults.items() <= typed.items()
    assert dataclasses.replace(entp, model=decoder.model) == decoder and entp.model.architecture == "entp"
    assert decoder.task_params["vocabulary"] == decoder.model.vocab_size == len(set(own_file.read_text()))
    assert decoder.task_params["checksum"] == hashlib.sha256(own_file.read_bytes()).hexdigest()[:16]
    for name in ("steps", "batch_size", "max_lr", "min_lr", "warmup_steps", "eval_every", "betas", "weight_decay"):
        assert getattr(decoder.train, name) == getattr(theirs.train, name), name
    assert dataclasses.replace(decoder.model, vocab_size=65) == theirs.model
    assert {k: theirs.task_params[k] for k in ("split", "held_out", "context")}.items() <= decoder.task_params.items()


def test_by_default_a_text_takes_minutes(own_file):
    """A small share of the published multiply-adds."""
    for size in (1, 100):
        own_file.write_text("".join(f"line {i} of a text\n\n" for i in range(200 * size)))
        runs = own_data.text_configs(str(own_file))
        published = own_data.text_configs(str(own_file), **own_data.PUBLISHED)
        assert sum(map(training_operations, runs)) < sum(map(training_operations, published)) / 50
        assert own_data.FEWEST <= runs[0].steps <= own_data.MOST
    assert runs[0].steps == own_data.MOST
    odd = own_data.text_configs(str(own_file), steps=599, evaluations=300)[0].train
    assert (odd.eval_every, math.ceil(odd.steps / odd.eval_every)) == (2, 300)  # one each step would be too many points


def test_a_run_that_was_cut_shows_its_losses(own_file, tmp_path, capsys):
    run = own_data.text_configs(str(own_file), ("decoder",), size="extra_small", context=8, steps=40, batch_size=4)[0]
    store, steps = Store(tmp_path / "own", read_only=False), iter(range(1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.time, "monotonic", lambda: float(next(steps)))
        record = execution.run(run, own_data.VERSIONS["own_text"], store=store, deadline=70.0)
    assert record.status == "partial"
    said = own_data.text_report([record])
    assert "validation" in said and f"cut at step {record.provenance['steps']} of 40" in said


def test_weights_and_tokenizer_lie_together(own_file, tmp_path):
    small = ["--size", "extra_small", "--context", "8", "--steps", "2", "--jobs", "1", "--batch-size", "4"]
    assert main(["text", str(own_file), *small, "--architecture", "decoder"]) == 0
    (weights,) = (tmp_path / "results" / "own" / "checkpoints" / "own_text").glob("*.weights.safetensors")
    (tokenizer,) = weights.parent.glob("*.tokenizer.json")
    config, _ = trained_model(weights)
    about = json.loads(tokenizer.read_text())
    found = restore(about["name"], about["vocabulary"], about["state"])
    assert found.decode(found.encode(["line 7"], False)) == "line 7" and found.vocab_size == config.model.vocab_size


def test_a_text_of_ones_own_is_trained_on(own_file, tmp_path, capsys):
    command = ["text", str(own_file), "--size", "extra_small", "--context", "8", "--steps", "6", "--jobs", "1"]
    assert main([*command, "--architecture", "decoder", "--batch-size", "8"]) == 0
    said = capsys.readouterr().out
    assert "decoder, seed 0" in said and "entp, seed" not in said and "validation" in said
    (record,) = (tmp_path / "results" / "own" / "records" / "own_text").glob("*.json")
    losses = json.loads(record.read_text())["curves"]["loss"]
    assert len(losses) == 6 and all(loss > 0 for loss in losses)
    assert not (tmp_path / "results" / "records").exists()  # nothing that a claim could rest on


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--context", "9000"], "context = "),
        (["--size", "huge"], "size = "),
        (["--tokenizer", "words"], "tokenizer = "),
        (["--vocabulary", "3"], "vocabulary = "),
        (["--steps", "-1"], "steps = "),
        (["--seeds", "0"], "seeds = "),
        (["--max-lr", "nan"], "max_lr = "),
        (["--jobs", "-1"], "--jobs -1: must be 0"),
        (["--time-limit", "soon"], "time limit 'soon': write"),
    ],
)
def test_what_a_text_lacks_is_one_line(own_file, capsys, options, message):
    assert main(["text", str(own_file), *options]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one paragraph of a text", "one piece of text, of which none can be held out"),
        ("a document that alone is ended\f", "one piece of text"),
        ("\n\n" * 5000, "all of it is one character"),
        ("", "is empty"),
    ],
)
def test_a_text_that_cannot_be_used_is_named(own_file, capsys, text, message):
    own_file.write_text(text)
    assert main(["text", str(own_file)]) == 2
    assert message in capsys.readouterr().err
    assert main(["text", str(own_file.with_name("embedded"))]) == 2
    assert capsys.readouterr().err.endswith("embedded: no such file\n")


def test_counts_are_those_of_the_text():
    tokens = np.array([0, 1, 0, 1, 1, 2])
    assert counts.counted(tokens, 1, 3).tolist() == [2, 3, 1]
    assert counts.counted(tokens, 2, 3).tolist() == [[0, 2, 0], [1, 1, 1], [0, 0, 0]]
    assert counts.counted(tokens, 3, 3).sum() == 4 and counts.counted(tokens, 3, 3)[0, 1, 0] == 1
    table = np.exp(counts.log_probabilities(counts.counted(tokens, 2, 3), 0.5))
    assert table.sum(-1) == pytest.approx([1, 1, 1]) and table[0] == pytest.approx([0.5 / 3.5, 2.5 / 3.5, 0.5 / 3.5])


def test_a_count_model_takes_the_longest_context_that_a_prefix_has():
    tokens = np.random.default_rng(0).integers(0, 3, 200)
    tables = [torch.from_numpy(counts.log_probabilities(counts.counted(tokens, n, 3), 0.1)) for n in (1, 2, 3)]
    inputs, wanted = torch.tensor([[2, 0, 1, 1]]), torch.tensor([[True, True, False, True]])
    expected = torch.stack([tables[1][2], tables[2][2, 0], tables[2][1, 1]])
    assert torch.equal(counts.CountModel(tables)(inputs, wanted), expected)
    assert torch.equal(counts.CountModel(tables[:1])(inputs, wanted), tables[0].expand(3, -1))


def test_counts_are_scored_on_the_windows_of_the_run_and_find_structure(tmp_path):
    path = tmp_path / "text.txt"
    words = np.random.default_rng(0).choice(["abc ", "abd "], (60, 20))
    path.write_text("\n\n".join("".join(row) for row in words))
    task = dict(corpus=str(path), split="tail", held_out=0.1, context=12, prefixes=3)
    metrics, _ = counts.counts_study(task, 64, 0)
    losses = [metrics[name]["loss"] for name in counts.ORDERS]
    assert losses[0] > losses[1] > losses[2] - 0.05 and losses[1] < 0.6
    assert metrics["trigram"]["loss_by_position"][0] == metrics["bigram"]["loss_by_position"][0]
    with pytest.raises(ConfigError, match="at most 256 symbols"):
        counts.counts_study({**task, "tokenizer": "gpt2"}, 64, 0)


def test_table_3_informs_only_below_the_bigram(records):
    """The last losses over all prefixes count; ENTP's with the swapped rates is the highest of the four."""
    (run,) = (run for run in OPENWEBTEXT.plan("quick", 1) if run.labels["arm"] == tables.COUNTS)
    last = {m["arm"] + m["schedule"]: m["last validation loss"] for m in tables.minima(records).to_dict("records")}
    worst = max(last.values())
    for bigram, barred in ((worst + 0.01, set()), (0.01, {"T3-loss", "T3-train", "T3-last"})):
        counted = {"loss": bigram, "position": [1, 2], "loss_by_position": [bigram, bigram]}
        metrics = {name: counted for name in counts.ORDERS}
        with_counts = [*records, Record("openwebtext", 1, run.config, metrics, {}, {}, labels=run.labels)]
        measured = OPENWEBTEXT.measure(with_counts)
        assert {m.claim for m in measured if m.excluded_because and m.claim in tables.CLAIMS} == barred
    assert not any(
        m.excluded_because for m in OPENWEBTEXT.measure(records) if m.claim in tables.CLAIMS
    )  # nothing was counted
