"""Counted costs against PyTorch's counter and against live tensors."""

import dataclasses
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lab.parameters import NotebookParameters
from entp_lab.store import Store
from entp_lib import costs as complexity
from entp_lib import kernels
from entp_lib.config import ModelConfig
from entp_lib.decoding import Cache, cached_logits
from entp_lib.model import build_model
from entp_lib.validation import ConfigError
from entp_papers.entp.complexity import experiment as study
from entp_papers.entp.complexity import measurements as costs
from entp_papers.entp.complexity import training_steps
from entp_papers.entp.complexity.experiment import COMPLEXITY
from entp_papers.entp.complexity.measurements import printed_attention, streaming_attention


def config(architecture="entp", layers=3, width=32, heads=4):
    return ModelConfig(architecture, layers, heads, width, 7, 24)


def counted(call):
    """Multiply-adds that PyTorch's counter sees, on a CPU."""
    with torch.no_grad():
        return complexity.counted(call)


def test_while_counting_no_kernel_hides_a_product():
    model = build_model(config())
    x = torch.zeros(1, 12, dtype=torch.long)
    with kernels.without_fused_kernels():
        assert not kernels.usable(torch.zeros(2))
    assert kernels.usable(torch.zeros(2))
    with pytest.raises(ZeroDivisionError):
        complexity.counted(lambda: model(x).sum() / 0 if kernels.usable(torch.zeros(2)) else 1 / 0)
    assert kernels.usable(torch.zeros(2))  # also after an error


@settings(max_examples=25)
@given(
    layers=st.integers(1, 4),
    heads=st.sampled_from([1, 2, 4]),
    lengths=st.sets(st.integers(1, 12), min_size=1).map(sorted),
    positions=st.sampled_from(["learned", "rotary"]),
)
def test_counts_agree_with_the_counter(layers, heads, lengths, positions):
    cfg = replace(config(layers=layers, heads=heads), positions=positions)
    model = build_model(cfg)
    x = torch.zeros(1, 12, dtype=torch.long)
    scored = torch.zeros(1, 12, dtype=torch.bool)
    scored[0, [n - 1 for n in lengths]] = True
    assert counted(lambda: model(x, scored)) == complexity.training_pass(cfg, lengths, 12)
    model.entp_method = "reference"
    assert counted(lambda: model(x, scored)) == sum(
        complexity.encoder_token(cfg, n) for n in lengths
    )
    decoder = build_model(config("decoder", layers, heads=heads))
    everything = torch.ones_like(scored)
    assert counted(lambda: decoder(x, everything)) == complexity.decoder_pass(cfg, 12)


def test_a_cached_step_costs_what_is_counted():
    cfg = config("decoder")
    model = build_model(cfg)
    x = torch.zeros(1, 9, dtype=torch.long)
    cache = Cache(model, 1)
    cached_logits(model, x[:, :8], cache)
    assert counted(lambda: cached_logits(model, x[:, 8:], cache)) == complexity.decoder_token(
        cfg, 9
    )


@given(
    n=st.integers(1, 20),
    width=st.integers(1, 6),
    scale=st.sampled_from([1.0, 30.0, 3000.0]),
    seed=st.integers(0, 99),
)
def test_algorithm_1_is_attention(n, width, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    q = scale * torch.randn(width, generator=generator, dtype=torch.float64)
    k = torch.randn(n, width, generator=generator, dtype=torch.float64)
    v = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    expected = F.softmax(k @ q / width**0.5, 0) @ v
    torch.testing.assert_close(streaming_attention(q, k, v), expected)


def test_algorithm_1_as_printed_is_attention_until_it_overflows():
    q = torch.tensor([2.0], dtype=torch.float64)
    k = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    torch.testing.assert_close(printed_attention(q, k, k), streaming_attention(q, k, k))
    assert printed_attention(1000 * q, k, k).isnan().all()
    assert streaming_attention(1000 * q, k, k).item() == 1.0


# What is measured of costs, and how Table 1 is judged by it.


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("costs"), read_only=False)
    return COMPLEXITY.compute(
        COMPLEXITY.plan("smoke", 0), NotebookParameters(tier="smoke"), store, fresh=False
    ).records


def changed(record, **curves):
    return dataclasses.replace(record, curves={**record.curves, **curves})


def test_live_tensors_counts_what_is_alive_at_a_time():
    a = torch.zeros(100)
    b = torch.zeros(100)

    def one_after_the_other():
        for _ in range(5):
            a + b

    def all_kept():
        return [a + b for _ in range(5)]

    assert costs.peak_bytes(one_after_the_other) == 400
    assert costs.peak_bytes(all_kept) == 2000
    assert (
        costs.peak_bytes(lambda: (a.view(10, 10), a[:5], a.add_(b))) == 0
    )  # views and in-place make nothing
    assert costs.peak_bytes(lambda: (a + b).view(10, 10)[:2]) == 400


def test_subjects_compute_what_they_are_named_for():
    """ENTP's last token is the encoder's; a decoder's cached step on a true cache is its pass."""
    subjects = costs.Subjects(ModelConfig("entp", 3, 2, 16, costs.VOCABULARY, 12))
    with torch.no_grad():
        for method in ("fast", "reference"):
            every = subjects.entp(9, method)()
            torch.testing.assert_close(every[8:], subjects.encoder_token(9)())
        assert subjects.decoder_pass(9)().shape == (1, 9, costs.VOCABULARY)
        assert subjects.decoder_token(9)().shape == (1, costs.VOCABULARY)


@pytest.mark.parametrize(
    ("curve", "values", "claim"),
    [
        ("decoder_transient", [80_000 * n for n in (8, 16, 32, 64)], "T1"),
        ("decoder_operations", [1, 2, 3, 4], "T1"),
        ("streamed_transient", [80_000 * n for n in (8, 16, 32, 64)], "D-1"),
        ("streamed_transient", [16 * 8 * 16**2] * 4, "D-1"),  # flat in n, but of the order of D²
    ],
)
def test_a_cost_of_another_order_refutes_its_claim(records, curve, values, claim):
    found = COMPLEXITY.measure([changed(records[0], **{curve: values}), *records[1:]])
    assert {check.claim: check.verdict for check in found}[claim] == "refuted"


def test_bad_parameters_are_named():
    good = study.study_of((2, 1, 8), [8], [4], 1, 1)
    for change in ({"lengths": [1, 8]}, {"rounds": 0}):
        with pytest.raises(ConfigError, match=f"{next(iter(change))} = "):
            costs.measure(**good | change)


@pytest.mark.parametrize(
    "wrong", [dict(arithmetic="SSE"), dict(precision="fp8"), dict(lengths=[0])]
)
def test_steps_that_make_no_sense_are_refused(wrong):
    shape = dict(n_layers=2, n_heads=1, width=8, tokens=16, rounds=1)
    given = dict(arithmetic="AVX2", precision="fp32", lengths=[4]) | shape | wrong
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        training_steps.steps_study(**given)
