"""Every scheme by the property it is named for, and every scheme in a decoder and in ENTP."""

import math

import numpy as np
import pytest
import torch

from entp_lib.config import ModelConfig
from entp_papers.compact import addition, positions
from entp_papers.compact.addition import FORMATS, addition_study
from entp_papers.compact.algorithms import ALGORITHMS
from entp_papers.compact.positions import SCHEMES, PositionedTransformer


def scheme(name, causal=True, longest=24, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SCHEMES[name](16, 4, longest, causal)


def distances(length):
    place = torch.arange(float(length))
    return place[:, None] - place


def model(name, architecture="entp", n_layers=2, seed=0):
    cfg = ModelConfig(architecture, n_layers, 2, 16, 7, 24)
    built = PositionedTransformer(cfg, name, seed)
    with torch.no_grad():
        for p in built.parameters():
            if p.dim() > 1:
                p.mul_(8)
    return built.double().eval()


def tokens(batch=3, length=9):
    return torch.randint(7, (batch, length), generator=torch.Generator().manual_seed(0))


def ids_for(name, batch=3, length=9):
    if SCHEMES[name].ids == "random":
        return positions.random_ids(batch, length, 24, torch.Generator().manual_seed(1))
    return (
        torch.randint(24, (batch, length), generator=torch.Generator().manual_seed(2))
        if SCHEMES[name].ids == "coupled"
        else None
    )


def test_rope_scores_depend_on_the_difference_of_places_alone_and_on_its_sign():
    rope = scheme("rope")
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q, k = (row.expand(1, 1, 12, 4) for row in x)
    scores = rope.turn(q)[0, 0] @ rope.turn(k)[0, 0].T
    torch.testing.assert_close(scores[3:, 3:], scores[:-3, :-3], rtol=0, atol=1e-6)
    assert (scores - scores.T).abs().max() > 1e-3
    torch.testing.assert_close(rope.turn(q).norm(dim=-1), q.norm(dim=-1))


def test_fire_by_its_formula():
    fire = scheme("fire")
    c = fire.raw_c.item()
    threshold = fire.raw_L.item()
    for i, j in ((1, 0), (12, 3)):
        ratio = math.log(c * (i - j) + 1) / math.log(c * max(i + 1, threshold) + 1)
        expected = fire.out(torch.relu(fire.hidden(torch.tensor([ratio]))))
        torch.testing.assert_close(fire.bias(distances(13), None)[:, i, j], expected)


def test_t5_buckets_tell_ahead_from_behind_only_without_a_mask():
    causal, full = (scheme("t5", causal).buckets(distances(200).long()) for causal in (True, False))
    assert (causal.triu() == 0).all() and (full.tril() < 16).all()
    assert (full[0, 1:] >= 16).all()
    assert causal.max() == full.max() == 31
    assert causal[15].tolist()[:16] == list(
        range(15, -1, -1)
    )  # near distances have buckets of their own


def test_randomised_ids_keep_order_and_reach_far():
    ids = positions.random_ids(50, 10, 24, torch.Generator().manual_seed(0))
    assert (ids[:, 1:] > ids[:, :-1]).all()
    assert 72 < ids.max() < 96
    assert ids.min() >= 0


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_symmetric_positions_depend_on_differences_of_significance_alone(architecture):
    built = model("symmetric", architecture)
    texts = ["$653+049=2070$", "$12+34=640$"]
    x = tokens(2, 14)
    scored = torch.ones_like(x, dtype=torch.bool)

    def logits(start):
        ids = [addition.coupled_ids(text, start) for text in texts]
        ids[1] += [0] * 3
        return built(x, scored, torch.tensor(ids))

    torch.testing.assert_close(logits(2), logits(9), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SCHEMES)
def test_outputs_never_see_later_tokens(name):
    built = model(name, "decoder")
    x = tokens()
    ids = ids_for(name)
    scored = torch.zeros_like(x, dtype=torch.bool)
    scored[:, 2:6:2] = True
    changed = x.clone()
    changed[:, 5:] = (x[:, 5:] + 1) % 7
    torch.testing.assert_close(
        built(x, scored, ids), built(changed, scored, ids), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_entp_is_the_unmasked_stack_on_each_prefix(name):
    built = model(name)
    x = tokens()
    ids = ids_for(name)
    ids = torch.arange(9).expand_as(x) if ids is None else ids
    scored = torch.zeros_like(x, dtype=torch.bool)
    scored[0, 4] = scored[1, 8] = scored[2, 0] = True
    found = built(x, scored, ids)
    for row, (b, end) in enumerate(scored.nonzero().tolist()):
        z = built.scheme.embed(built.embedding(x[b : b + 1, : end + 1]), ids[b : b + 1, : end + 1])
        bias = built.scheme.bias(distances(end + 1).double(), ids[b : b + 1, : end + 1])
        for block in built.blocks:
            q, k, v = built.project(block, z)
            weights = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
            weights = (weights if bias is None else weights + bias).softmax(-1)
            z = block.residual(z, block.attention.out((weights @ v).transpose(1, 2).flatten(2)))
        logits = built.ln_f(z[0, -1]) @ built.embedding.weight.T
        torch.testing.assert_close(found[row], logits, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", [n for n in SCHEMES if n != "t5"])
def test_one_layer_of_entp_is_the_decoder(name):
    x = tokens()
    ids = ids_for(name)
    scored = torch.ones_like(x, dtype=torch.bool)
    outputs = [model(name, architecture, 1)(x, scored, ids) for architecture in ("decoder", "entp")]
    torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-9)


# Sums written in five formats, the coupling of the paper's example, and the study of length.


TINY = dict(
    trained_digits=2,
    tested_digits=[2, 3],
    n_layers=1,
    n_heads=2,
    width=16,
    steps=4,
    batch_size=8,
    tested=10,
)


def read(form, text):
    """Read the three numbers of a text."""
    operands, answer = text.replace(" ", "").strip("$").split("=")
    numbers = ["".join(c for c in part if c.isdigit()) for part in (*operands.split("+"), answer)]
    return tuple(int(n[::-1] if i in form.reverse else n) for i, n in enumerate(numbers))


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip_within_the_longest_text(name):
    generator = np.random.default_rng(0)
    for a, b in generator.integers(0, 10 ** generator.integers(1, 16, (500, 2))).tolist():
        text = addition.write(FORMATS[name], a, b, generator)
        assert read(FORMATS[name], text) == (a, b, a + b)
        assert len(text) <= addition.longest_text(name, 15)
        assert " " not in text.split("=")[1]


def test_the_answer_and_its_end_are_scored():
    tokens, scored = addition.encode(["$1+2=3$", "$10+2=21$"])
    targets = [
        [addition.SYMBOLS[i] for i in row[1:][s].tolist()]
        for row, s in zip(tokens, scored, strict=True)
    ]
    assert targets == [["3", "$"], ["2", "1", "$"]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_questions_of_table_1_have_their_size_and_one_answer(name):
    """What an answer is, the printed examples say; here that every drawn question has one."""
    ask, solve = ALGORITHMS[name]
    generator = np.random.default_rng(0)
    for size in range(1, 9):
        question = ask(size, generator)
        expected = {"polynomial": size + 2, "lego": 3 * size + 1}.get(name, size)
        assert len(question) == expected
        assert set(question + solve(question)) <= set(addition.SYMBOLS)


def test_sums_of_one_digit_are_learned():
    shape = dict(n_layers=1, n_heads=2, width=32, steps=250, rate=3e-3, tested=50)
    found, curves = addition_study("learned", "padded", "decoder", 1, [1], **shape)
    assert found["token_accuracy"]["1"] > 0.6
    assert curves["loss"][-1] < 0.4 * curves["loss"][0]
