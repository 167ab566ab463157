"""Counted costs against PyTorch's counter and against live tensors."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

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
    model, x = build_model(config()), torch.zeros(1, 12, dtype=torch.long)
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
    x, scored = torch.zeros(1, 12, dtype=torch.long), torch.zeros(1, 12, dtype=torch.bool)
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
    model, x = build_model(cfg), torch.zeros(1, 9, dtype=torch.long)
    cache = Cache(model, 1)
    cached_logits(model, x[:, :8], cache)
    assert counted(lambda: cached_logits(model, x[:, 8:], cache)) == complexity.decoder_token(
        cfg, 9
    )


def test_attention_outweighs_the_linear_maps_from_six_widths_on():
    cfg, n = config(), complexity.crossover(config())
    assert 2 * n * n * cfg.width == n * complexity.linear_maps(cfg)
    assert n == 6 * cfg.width


def test_the_engine_saves_what_the_design_says():
    """36 to 21 units of D² per pair with three layers, 72 to 57 with six, when sequences are long
    and wide.
    """
    for layers, bound in ((3, 36 / 21), (6, 72 / 57)):
        cfg = ModelConfig("entp", layers, 8, 8192, 1, 64)
        lengths = range(1, 65)
        ratio = sum(complexity.encoder_token(cfg, n) for n in lengths) / complexity.training_pass(
            cfg, lengths, 64
        )
        assert ratio == pytest.approx(bound, rel=0.05)


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
    q, k = (
        torch.tensor([2.0], dtype=torch.float64),
        torch.tensor([[1.0], [-1.0]], dtype=torch.float64),
    )
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
    a, b = torch.zeros(100), torch.zeros(100)

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


def test_scores_are_seen_where_they_are_formed():
    """The matrix of scores, H n² entries, is live in plain attention and absent from the streaming
    kernel.
    """
    subjects = costs.Subjects(ModelConfig("entp", 2, 4, 8, costs.VOCABULARY, 256))
    with torch.no_grad():
        with sdpa_kernel(SDPBackend.MATH):
            dense = {n: costs.peak_bytes(subjects.encoder_token(n)) for n in (128, 256)}
        streamed = {n: costs.peak_bytes(subjects.encoder_token(n)) for n in (128, 256)}
    assert dense[256] > 4 * 4 * 256**2 and dense[256] / dense[128] > 3.5
    assert streamed[256] == 2 * streamed[128]


def test_subjects_compute_what_they_are_named_for():
    """ENTP's last token is the encoder's; a decoder's cached step on a true cache is its pass."""
    subjects = costs.Subjects(ModelConfig("entp", 3, 2, 16, costs.VOCABULARY, 12))
    with torch.no_grad():
        for method in ("fast", "reference"):
            every = subjects.entp(9, method)()
            torch.testing.assert_close(every[8:], subjects.encoder_token(9)())
        assert subjects.decoder_pass(9)().shape == (1, 9, costs.VOCABULARY)
        assert subjects.decoder_token(9)().shape == (1, costs.VOCABULARY)


def test_costs_are_those_that_are_counted(records):
    same = study.formulas_hold(records)
    assert (same["points"] == same["equal"]).all() and same["points"].min() >= 4
    wrong = [
        changed(
            records[0], decoder_operations=[n + 1 for n in records[0].curves["decoder_operations"]]
        )
    ]
    assert study.formulas_hold([*wrong, *records[1:]]).loc["decoder_operations", "equal"] == 4


def test_memory_is_as_table_1_says(records):
    tokens = study.per_token(records)
    assert (
        tokens["decoder_persistent"] == 2 * 4 * tokens["length"] * tokens["D"] * tokens["L"]
    ).all()
    for _, part in tokens.groupby("shape"):
        assert part["decoder_transient"].nunique() == 1
        assert (part["encoder_transient"] / part["length"]).nunique() == 1


def test_table_1_is_verified_with_a_correction_and_refuted_without_one(records):
    check, _, algorithm_1 = COMPLEXITY.measure(records)
    assert (check.claim, check.verdict, check.tier) == ("T1", "verified with correction", "smoke")
    assert (algorithm_1.claim, algorithm_1.verdict) == (
        "D-1",
        "verified",
    ) and "overflows" in algorithm_1.remark
    assert "12 n D²" in check.correction and len(check.records) == len(records)
    growing = [2 * 4 * n * 10_000 for n in records[0].curves["length"]]
    check, *_ = COMPLEXITY.measure([changed(records[0], decoder_transient=growing), *records[1:]])
    assert check.verdict == "refuted"
    *_, algorithm_1 = COMPLEXITY.measure(
        [changed(records[0], streamed_transient=growing), *records[1:]]
    )
    assert algorithm_1.verdict == "refuted"
    wide = [16 * 8 * 16**2] * len(growing)  # as flat in n, but of the order of D²
    *_, algorithm_1 = COMPLEXITY.measure(
        [changed(records[0], streamed_transient=wide), *records[1:]]
    )
    assert algorithm_1.verdict == "refuted"
    assert COMPLEXITY.measure([]) == []


def test_algorithm_1_as_printed_is_attention_and_one_that_is_not_is_refuted(records, monkeypatch):
    monkeypatch.setattr(
        "entp_papers.entp.complexity.measurements.printed_attention", lambda q, k, v: v.mean(0)
    )
    *_, algorithm_1 = COMPLEXITY.measure(records)
    assert algorithm_1.verdict == "refuted"


def test_fit_finds_both_terms():
    n = np.array([8, 16, 32, 64, 128, 256])
    y = 1e-3 + 2e-5 * n + 3e-7 * n**2
    found = study.fit(n, y, (0, 1, 2))
    assert found == pytest.approx({0: 1e-3, 1: 2e-5, 2: 3e-7}, rel=1e-6)
    assert study.fitted(found, n) == pytest.approx(y)
    assert study.fit(n, 5e-3 + 0 * n, (0, 1)) == pytest.approx({0: 5e-3, 1: 0.0}, abs=1e-12)


def test_bad_parameters_are_named():
    good = study.study_of(2, 1, 8, [8], [4], 1, 1)
    for change in ({"lengths": [1, 8]}, {"rounds": 0}):
        with pytest.raises(ConfigError, match=f"{next(iter(change))} = "):
            costs.measure(**good | change)


def test_linear_maps_are_the_larger_part_of_a_small_model_s_step_until_1511_tokens():
    small = ModelConfig.from_size("small", architecture="entp", vocab_size=64, max_length=64)
    for length, leads in (
        (1510, False),
        (1511, True),
    ):  # the terms of D² by hand: 3 n, 9 a pair, 12 a pair, 12 n
        pairs = length * (length + 1) // 2
        linear = small.width**2 * (15 * length + 21 * pairs)
        total = complexity.training_pass(
            small, range(1, length + 1), length
        ) - length * complexity.head(small)
        assert (total - linear > linear) is leads


def test_steps_are_timed_and_refuse_what_makes_no_sense():
    shape = dict(n_layers=2, n_heads=1, width=8, tokens=16, rounds=1)
    metrics, curves = training_steps.time_steps("fp32", lengths=[4, 8], **shape)
    assert metrics["instructions"] and min(curves["entp_seconds"] + curves["decoder_seconds"]) > 0
    assert [len(values) for values in curves.values()] == [2] * 5
    for wrong in (dict(arithmetic="SSE"), dict(precision="fp8"), dict(lengths=[0])):
        given = dict(arithmetic="AVX2", precision="fp32", lengths=[4]) | shape | wrong
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            training_steps.steps_study(**given)


def test_committed_counts_are_those_of_the_formulas_and_fast_gives_the_loop_s_outputs():
    records = COMPLEXITY.committed()
    counts = study.formulas_hold(records)
    assert (counts["points"] == counts["equal"]).all()
    tokens = study.per_token(records)
    head = tokens["D"] * study.VOCABULARY  # the output, which either computes once
    ratio = (tokens["encoder_operations"] - head) / (tokens["decoder_operations"] - head)
    assert (ratio == tokens["length"]).all()
    assert all(
        r.metrics["fast_error"] < 1e-5 and r.metrics["streamed_error"] < 1e-12 for r in records
    )
