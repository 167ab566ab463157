"""The Transformer with constructed weights: right wherever it should be, wrong where it must be."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.models.decoding import generate
from entp_lib.records.store import Store
from entp_lib.tasks.counting import count3, next_symbols
from entp_papers.entp.rasp import studies
from entp_papers.entp.rasp.constructed import (
    constructed_count3,
    hard_cases,
    run_by_layer,
    wrong_answers,
)
from entp_papers.entp.rasp.experiment import RASP

MODEL = constructed_count3(12, 40)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_answers_every_prefix(x):
    """By the argmax, with a margin of 1 between neighbouring logits."""
    tokens = torch.tensor([x])
    logits = MODEL(tokens, torch.ones_like(tokens, dtype=torch.bool))
    right = [count3(x[: t + 1]) for t in range(len(x))]
    assert logits.argmax(-1).tolist() == right
    top = logits.topk(2).values
    torch.testing.assert_close(top[:, 0] - top[:, 1], torch.ones(len(x), dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("length", "max_value"), [(1, 0), (1, 60), (2, 7), (5, 0), (5, 60), (24, 7), (24, 60)])
def test_hard_cases(length, max_value):
    model, x = constructed_count3(length, max_value), hard_cases(length, max_value)
    assert x.min() >= 0 and x.max() <= max_value
    wrong, asked, _ = wrong_answers(model, x, torch.ones_like(x, dtype=torch.bool))
    assert (wrong, asked) == (0, x.numel())


def test_it_generates_count3():
    prompt = torch.randint(41, (8, 4), generator=torch.Generator().manual_seed(2))
    text = generate(MODEL, prompt, 8)
    for n in range(4, 12):
        assert torch.equal(next_symbols(text[:, :n], order=3), text[:, n])


def test_a_causal_mask_breaks_it():
    """At the first layer: earlier tokens do not learn n. The last token, which sees all, fails when it asks them."""
    decoder, x = constructed_count3(12, 40, "decoder"), torch.tensor([4, 40, 1, 39, 7, 26, 38, 34])
    full, masked = run_by_layer(MODEL, x), run_by_layer(decoder, x)
    assert full[0].column("last").tolist() == pytest.approx([7] * 8)
    assert masked[0].column("last").tolist() == pytest.approx(list(range(8)))
    same = [torch.allclose(a.state_TD[-1], b.state_TD[-1]) for a, b in zip(full, masked, strict=True)]
    first_wrong = same.index(False)
    assert first_wrong > 0 and "select the positions" in MODEL.says[first_wrong]
    many = torch.randint(41, (30, 12), generator=torch.Generator().manual_seed(0))
    wrong, asked, _ = wrong_answers(decoder, many, torch.ones_like(many, dtype=torch.bool))
    assert wrong > asked / 2


def test_precisions_fail_where_numbers_do_not_fit():
    exact, coarse = constructed_count3(16, 15), constructed_count3(32, 31)
    for model, fails in ((exact, False), (coarse, True)):
        x = hard_cases(model.cfg.max_length, model.cfg.max_length - 1)
        wanted = torch.ones_like(x, dtype=torch.bool)
        wrong = {name: wrong_answers(twin, x, wanted)[0] for name, twin in studies.in_precisions(model).items()}
        assert wrong["fp64"] == wrong["fp32"] == 0 and (wrong["bf16"] > 0) is fails


def test_what_lies_outside_the_construction_is_named():
    for named, call in {
        "max_length = ": lambda: constructed_count3(0, 5),
        "max_value = ": lambda: constructed_count3(4, -1),
        "13 tokens": lambda: MODEL(torch.zeros(1, 13, dtype=torch.long), torch.ones(1, 13, dtype=torch.bool)),
        "token id 41": lambda: run_by_layer(MODEL, torch.tensor([41])),
    }.items():
        with pytest.raises(ValueError, match=named):
            call()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("rasp"), read_only=False)
    return RASP.compute(RASP.plan("smoke", 0), NotebookParameters(tier="smoke"), store, fresh=False).records


def test_verdicts_follow_from_the_records(records):
    checks = {check.claim: check for check in RASP.measure(records)}
    verdicts = {claim: check.verdict for claim, check in checks.items()}
    found = {k for k, v in verdicts.items() if v == "verified"}
    assert found == {"6.2-medium", "6.3", "6.4", "A.7", "E-2", "E-3", "F-4"}
    assert {k for k, v in verdicts.items() if v == "verified with correction"} == {"F-5", "6.3-seeds"}
    assert verdicts["6.1"] == "refuted" and verdicts["6.2"] == verdicts["6.2-close"] == "unproved"
    assert "base-4 digit" in checks["6.3"].remark and "mod n" in checks["F-4"].remark
    assert checks["6.2-medium"].remark == "3 layers of width 49 are enough at length 9"
    assert RASP.measure(records[:3]) == []


@pytest.mark.parametrize(
    ("study", "curve", "values", "claim", "verdict"),
    [
        ("below_length", "wrong", [1, 0], "6.3", "refuted"),
        ("below_length", "layers", [10, 11], "6.3", "refuted"),
        ("counters", "right", [False, False], "6.1", "unproved"),  # no counterexample would not prove it
        ("constructed_decoder", "hard_wrong", [1, *[0] * 8], "6.2-medium", "refuted"),
    ],
)
def test_a_record_that_says_otherwise_turns_the_verdict(records, study, curve, values, claim, verdict):
    before = {check.claim: check.verdict for check in RASP.measure(records)}
    changed = [
        dataclasses.replace(r, curves={**r.curves, curve: values}) if r.labels["study"] == study else r for r in records
    ]
    assert {check.claim: check.verdict for check in RASP.measure(changed)} == before | {claim: verdict}


def test_values_below_the_length_need_ten_layers_at_any_length():
    for longest in (2, 5, 16, 33):
        model = constructed_count3(longest, longest - 1, reduce=False)
        assert model.cfg.n_layers == len(model.says) == 10
        generator = torch.Generator().manual_seed(longest)
        for n in range(1, longest + 1):
            x = torch.randint(n, (20, n), generator=generator)
            wanted = torch.arange(n)[None].expand(20, -1) == n - 1
            assert wrong_answers(model, x, wanted)[0] == 0


def test_two_relu_layers_take_the_remainder_if_m_is_large_enough():
    assert studies.mod_errors(20, 40, 0.5) == 0
    assert studies.mod_errors(20, 40, 0.1) > 0
    assert studies.mod_errors(20, 200, 0.1) == 0
    assert studies.mod_errors(20, 180, 0.1) > 0  # n/ε is needed, not only enough
