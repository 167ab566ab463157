"""The Transformer with constructed weights: right wherever it should be, wrong where it must be."""

import dataclasses
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lab.parameters import NotebookParameters
from entp_lab.store import Store
from entp_lib.config import ModelConfig
from entp_lib.model import Block, Transformer, build_model
from entp_lib.tasks.counting import count3, count3_quadratic
from entp_lib.validation import ConfigError
from entp_papers.entp.rasp import studies
from entp_papers.entp.rasp.constructed import (
    constructed_count3,
    hard_cases,
    run_by_layer,
    wrong_answers,
)
from entp_papers.entp.rasp.constructed_decoder import (
    count3_decoder,
    hard_sequences,
    longest_held,
    parts,
    smallest_decoder,
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
    torch.testing.assert_close(
        top[:, 0] - top[:, 1], torch.ones(len(x), dtype=torch.float64), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("length", "max_value"), [(1, 0), (1, 60), (2, 7), (5, 0), (5, 60), (24, 7), (24, 60)]
)
def test_hard_cases(length, max_value):
    model, x = constructed_count3(length, max_value), hard_cases(length, max_value)
    assert x.min() >= 0 and x.max() <= max_value
    wrong, asked, _ = wrong_answers(model, x, torch.ones_like(x, dtype=torch.bool))
    assert (wrong, asked) == (0, x.numel())


def test_a_causal_mask_breaks_it():
    """At the first layer: earlier tokens do not learn n. The last token, which sees all, fails when
    it asks them.
    """
    decoder, x = constructed_count3(12, 40, "decoder"), torch.tensor([4, 40, 1, 39, 7, 26, 38, 34])
    full, masked = run_by_layer(MODEL, x), run_by_layer(decoder, x)
    assert full[0].column("last").tolist() == pytest.approx([7] * 8)
    assert masked[0].column("last").tolist() == pytest.approx(list(range(8)))
    same = [
        torch.allclose(a.state_TD[-1], b.state_TD[-1]) for a, b in zip(full, masked, strict=True)
    ]
    first_wrong = same.index(False)
    assert first_wrong > 0 and "select the positions" in MODEL.says[first_wrong]
    many = torch.randint(41, (30, 12), generator=torch.Generator().manual_seed(0))
    wrong, asked, _ = wrong_answers(decoder, many, torch.ones_like(many, dtype=torch.bool))
    assert wrong > asked / 2


def test_precisions_fail_where_numbers_do_not_fit():
    exact, coarse = constructed_count3(16, 15), constructed_count3(32, 31)
    for model, fails in ((exact, False), (coarse, True)):
        x = hard_cases(model.cfg.max_length, model.cfg.max_length - 1)
        scored = torch.ones_like(x, dtype=torch.bool)
        wrong = {
            name: wrong_answers(twin, x, scored)[0]
            for name, twin in studies.in_precisions(model).items()
        }
        assert wrong["fp64"] == wrong["fp32"] == 0 and (wrong["bf16"] > 0) is fails


def test_what_lies_outside_the_construction_is_named():
    for named, call in {
        "max_length = ": lambda: constructed_count3(0, 5),
        "max_value = ": lambda: constructed_count3(4, -1),
        "13 tokens": lambda: MODEL(
            torch.zeros(1, 13, dtype=torch.long), torch.ones(1, 13, dtype=torch.bool)
        ),
        "token id 41": lambda: run_by_layer(MODEL, torch.tensor([41])),
    }.items():
        with pytest.raises(ValueError, match=named):
            call()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("rasp"), read_only=False)
    return RASP.compute(
        RASP.plan("smoke", 0), NotebookParameters(tier="smoke"), store, fresh=False
    ).records


def test_verdicts_follow_from_the_records(records):
    checks = {check.claim: check for check in RASP.measure(records)}
    verdicts = {claim: check.verdict for claim, check in checks.items()}
    found = {k for k, v in verdicts.items() if v == "verified"}
    assert found == {"6.2-medium", "6.3", "6.4", "A.7", "E-2", "E-3", "F-4"}
    assert {k for k, v in verdicts.items() if v == "verified with correction"} == {
        "F-5",
        "6.3-seeds",
    }
    assert verdicts["6.1"] == "refuted" and verdicts["6.2"] == verdicts["6.2-close"] == "unproved"
    assert "base-4 digit" in checks["6.3"].remark and "mod n" in checks["F-4"].remark
    assert checks["6.2-medium"].remark == "3 layers of width 49 are enough at length 9"
    assert {check.claim for check in RASP.measure(records[:1])} == {
        "6.4",
        "A.7",
        "E-2",
        "E-3",
        "F-4",
        "F-5",
    }


@pytest.mark.parametrize(
    ("study", "curve", "values", "claim", "verdict"),
    [
        ("below_length", "wrong", [1, 0], "6.3", "refuted"),
        ("below_length", "layers", [10, 11], "6.3", "refuted"),
        (
            "counters",
            "right",
            [False, False],
            "6.1",
            "unproved",
        ),  # no counterexample would not prove it
        ("constructed_decoder", "hard_wrong", [1, *[0] * 8], "6.2-medium", "refuted"),
    ],
)
def test_a_record_that_says_otherwise_turns_the_verdict(
    records, study, curve, values, claim, verdict
):
    before = {check.claim: check.verdict for check in RASP.measure(records)}
    changed = [
        dataclasses.replace(r, curves={**r.curves, curve: values})
        if r.labels["study"] == study
        else r
        for r in records
    ]
    assert {check.claim: check.verdict for check in RASP.measure(changed)} == before | {
        claim: verdict
    }


def test_values_below_the_length_need_ten_layers_at_any_length():
    for longest in (2, 5, 16, 33):
        model = constructed_count3(longest, longest - 1, reduce=False)
        assert model.cfg.n_layers == len(model.says) == 10
        generator = torch.Generator().manual_seed(longest)
        for n in range(1, longest + 1):
            x = torch.randint(n, (20, n), generator=generator)
            scored = torch.arange(n)[None].expand(20, -1) == n - 1
            assert wrong_answers(model, x, scored)[0] == 0


def test_two_relu_layers_take_the_remainder_if_m_is_large_enough():
    assert studies.mod_errors(20, 40, 0.5) == 0
    assert studies.mod_errors(20, 40, 0.1) > 0
    assert studies.mod_errors(20, 200, 0.1) == 0
    assert studies.mod_errors(20, 180, 0.1) > 0  # n/ε is needed, not only enough


# The decoder with constructed weights: an ordinary Transformer, right at every prefix, and refused
# where too small.


CFG = smallest_decoder(40, 12)
DECODER = count3_decoder(CFG)
X = torch.randint(40, (6, 12), generator=torch.Generator().manual_seed(1))


def everywhere(x_BT):
    return torch.ones_like(x_BT, dtype=torch.bool)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 39), min_size=1, max_size=12))
def test_answers_every_prefix_in_one_causal_pass(x):
    logits_TV = DECODER(torch.tensor([x]))
    assert logits_TV.argmax(-1).tolist() == [count3_quadratic(x[: t + 1]) for t in range(len(x))]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("vocab", "length"), [(2, 1), (2, 2), (3, 3), (8, 5), (13, 13), (24, 24)])
def test_hard_sequences(vocab, length, dtype):
    model, x = (
        count3_decoder(smallest_decoder(vocab, length)).to(dtype),
        hard_sequences(length, vocab),
    )
    assert x.min() >= 0 and x.max() <= vocab - 1
    wrong, asked, margin = wrong_answers(model, x, everywhere(x))
    assert (wrong, asked) == (0, x.numel()) and margin > 2.5


def test_it_is_the_librarys_decoder():
    """No block, mask or activation of its own: its weights are loaded into a model made the usual
    way.
    """
    model = build_model(CFG).double().eval()
    model.load_state_dict(DECODER.state_dict())
    assert (
        CFG.architecture == "decoder"
        and type(DECODER) is Transformer
        and {type(b) for b in DECODER.blocks} == {Block}
    )
    assert torch.equal(model(X), DECODER(X))


def test_attention_reads_embeddings_alone_so_that_full_attention_answers_the_same():
    entp = count3_decoder(replace(CFG, architecture="entp"))
    assert wrong_answers(entp, X, everywhere(X))[0] == 0


def test_the_steps_are_those_described():
    x, where = X[0], parts(40, 12)
    with torch.no_grad():
        state = DECODER.embed(x[None])
        for block in DECODER.blocks[:-1]:
            state = block(state, causal=True)
        state_TD, end = state[0], DECODER.blocks[-1](state, causal=True)[0]
    share = torch.bincount(x, minlength=40) / 12
    torch.testing.assert_close(state_TD[-1, where["share"]], share.double(), rtol=0, atol=1e-6)
    for t in range(12):
        n, seen = t + 1, x[: t + 1]
        count = int(((seen[:, None] + seen + seen[-1]) % n == 0).sum())
        assert float(state_TD[t, where["mean"]]) * n**2 == pytest.approx(count, abs=0.01)
        assert float(end[t, where["floor"]]) * 12 == pytest.approx(min(count // n, n - 1), abs=1e-6)


def test_the_papers_medium_has_room_for_its_task():
    cfg = ModelConfig.from_size("medium", architecture="decoder", vocab_size=64, max_length=64)
    model, random = count3_decoder(cfg).float(), torch.Generator().manual_seed(3)
    x = torch.cat([torch.randint(64, (4, 64), generator=random), hard_sequences(64, 64)[::12]])
    assert wrong_answers(model, x, everywhere(x))[0] == 0
    idle = [not block.fc_out.weight.any() for block in model.blocks]
    assert idle == [False, False, True, True, False, False]


def test_what_the_papers_sizes_hold():
    for size in ("small", "medium"):
        n = longest_held(size)
        count3_decoder(
            ModelConfig.from_size(size, architecture="decoder", vocab_size=n, max_length=n)
        )
        with pytest.raises(ConfigError, match="must be at least"):
            count3_decoder(
                ModelConfig.from_size(
                    size, architecture="decoder", vocab_size=n + 1, max_length=n + 1
                )
            )
    assert longest_held("small") < 64 < longest_held("medium")


@pytest.mark.parametrize(
    ("change", "least"),
    [
        (dict(width=175), "at least 176"),
        (dict(n_layers=2), "at least 3"),
        (dict(vocab_size=11), "at least 12"),
    ],
    ids=str,
)
def test_a_size_that_cannot_be_is_refused_with_the_least_that_would_do(change, least):
    with pytest.raises(ConfigError, match=f"{next(iter(change))} = .*{least}"):
        count3_decoder(replace(CFG, **change))
