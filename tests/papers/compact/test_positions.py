"""Every scheme by the property it is named for, and every scheme in a decoder and in ENTP."""

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import everywhere, seeded, spread
from mistakes import named

from entp_lab.studies import gaussians
from entp_lib.config import ModelConfig
from entp_papers.compact import addition
from entp_papers.compact.addition import FORMATS, addition_study
from entp_papers.compact.algorithms import ALGORITHMS, algorithm_study
from entp_papers.compact.positions import SCHEMES, PositionedTransformer, random_ids

test_mistakes_are_named = named(
    (lambda: addition_study("foo", "padded", "entp"), "positions = 'foo': must be one of"),
    (lambda: addition_study("t5", "foo", "entp"), "format = 'foo': must be one of"),
    (
        lambda: addition_study("t5", "padded", "entp", tested_digits=[]),
        "tested_digits = 0: must be",
    ),
    (
        lambda: addition_study("t5", "padded", "entp", trained_digits=0),
        "trained_digits = 0: must be",
    ),
    (lambda: addition_study("t5", "padded", "entp", tested_digits=[20]), "digits = 20: at most"),
    (lambda: algorithm_study("foo", "entp", "t5", 2, [2]), "task = 'foo': must be one of"),
    (lambda: algorithm_study("parity", "entp", "coupled", 2, [2]), "positions = 'coupled': must"),
    (lambda: algorithm_study("lego", "entp", "t5", 2, [14]), "size = 14: lego has 13"),
    (
        lambda: algorithm_study("sorting", "entp", "t5", 2, [2], batch_size=0),
        "batch_size = 0: must be",
    ),
)


def scheme(name, architecture="decoder"):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SCHEMES[name](ModelConfig(architecture, 1, 4, 16, 7, 24))


def distances(length):
    place = torch.arange(float(length))
    return place[:, None] - place


def test_rope_scores_depend_on_the_difference_of_places_alone_and_on_its_sign():
    rope = scheme("rope")
    x = gaussians(0, 2, 1, 4)
    q, k = rope.turn(x.expand(2, 12, 4)[None])[0]
    scores = q @ k.T
    torch.testing.assert_close(scores[3:, 3:], scores[:-3, :-3], rtol=0, atol=1e-6)
    assert (scores - scores.T).abs().max() > 1e-3
    torch.testing.assert_close(q.norm(dim=1), x[0].norm().expand(12))


def test_fire_by_its_formula():
    fire = scheme("fire")
    c = fire.raw_c.item()
    bias_HTT = fire.bias(distances(13), None)
    for i, j in ((1, 0), (12, 3)):
        whole = max(i + 1, fire.raw_L.item())
        ratio = math.log1p(c * (i - j)) / math.log1p(c * whole)
        hidden = torch.relu(fire.hidden(torch.tensor([ratio])))
        torch.testing.assert_close(bias_HTT[:, i, j], fire.out(hidden))


def test_t5_buckets_tell_ahead_from_behind_only_without_a_mask():
    causal = scheme("t5").buckets(distances(200).long())
    full = scheme("t5", "entp").buckets(distances(200).long())
    assert (causal.triu() == 0).all()
    assert (full.tril() < 16).all()
    assert (full[0, 1:] >= 16).all()
    assert causal.max() == full.max() == 31
    near = causal[15, :16].tolist()
    assert near == sorted(set(near), reverse=True)  # near distances have buckets of their own


def test_randomised_ids_keep_order_and_reach_far():
    ids = random_ids(50, 10, 24, seeded(0))
    assert (ids[:, 1:] > ids[:, :-1]).all()
    assert 72 < ids.max() < 96
    assert ids.min() >= 0


both_masks = pytest.mark.parametrize("architecture", ["decoder", "entp"])


def stack(name, architecture):
    cfg = ModelConfig(architecture, 2, 2, 16, 7, 24)
    model = PositionedTransformer(cfg, name, 0).double()
    spread(model)
    return model


@both_masks
def test_symmetric_positions_depend_on_differences_of_significance_alone(architecture):
    model = stack("symmetric", architecture)
    tokens_BT = torch.randint(7, (1, 14), generator=seeded(0))
    near, far = (addition.coupled_ids("$653+049=2070$", start) for start in (2, 9))
    scored_BT = everywhere(tokens_BT)
    logits_NV = model(tokens_BT, scored_BT, torch.tensor([near]))
    moved_NV = model(tokens_BT, scored_BT, torch.tensor([far]))
    torch.testing.assert_close(logits_NV, moved_NV, rtol=1e-9, atol=1e-9)


IDS = {
    "random": lambda generator: random_ids(3, 9, 24, generator),
    "coupled": lambda generator: torch.randint(24, (3, 9), generator=generator),
    "index": lambda generator: torch.arange(9).expand(3, 9),
}


@both_masks
@pytest.mark.parametrize("name", SCHEMES)
def test_every_output_is_that_of_the_plain_stack_on_its_prefix(name, architecture):
    model = stack(name, architecture)
    generator = seeded(0)
    tokens_BT = torch.randint(7, (3, 9), generator=generator)
    ids_BT = IDS[SCHEMES[name].ids](generator)
    scored_BT = torch.zeros_like(tokens_BT, dtype=torch.bool)
    ends = [4, 8, 0]
    scored_BT[[0, 1, 2], ends] = True
    found_NV = model(tokens_BT, scored_BT, ids_BT)
    for logits_V, (b, end) in zip(found_NV, enumerate(ends), strict=True):
        size = end + 1
        ids = ids_BT[[b], :size]
        seen = torch.ones(size, size, dtype=torch.float64)
        if architecture == "decoder":
            seen = seen.tril()
        bias = model.scheme.bias(distances(size).double(), ids)
        mask = seen.log() + (0.0 if bias is None else bias)
        x = model.scheme.embed(model.embedding(tokens_BT[[b], :size]), ids)
        for block in model.blocks:
            q, k, v = model.project(block, x)
            heads = F.scaled_dot_product_attention(q, k, v, mask)
            attended = block.attention.out(heads.transpose(1, 2).flatten(2))
            x = block.residual(x, attended)
        expected_V = model.head(model.ln_f(x[0, -1]))
        torch.testing.assert_close(logits_V, expected_V, rtol=1e-8, atol=1e-8)


# Sums written in five formats, the coupling of the paper's example, and the study of length.


def read(form, text):
    """Read the three numbers of a text."""
    numbers = [re.sub(r"\D", "", part) for part in re.split("[+=]", text)]
    for place in form.reverse:
        numbers[place] = numbers[place][::-1]
    return [int(number) for number in numbers]


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip_within_the_longest_text(name):
    generator = np.random.default_rng(0)
    largest = 10 ** generator.integers(1, 16, (500, 2))
    for a, b in generator.integers(0, largest).tolist():
        text = addition.write(FORMATS[name], a, b, generator)
        assert read(FORMATS[name], text) == [a, b, a + b]
        assert len(text) <= addition.longest_text(name, 15)
        assert " " not in text.split("=")[1]


def test_the_answer_and_its_end_are_scored():
    tokens, scored = addition.encode(["$1+2=3$", "$10+2=21$"])
    targets = tokens[:, 1:][scored].tolist()
    assert "".join(addition.SYMBOLS[i] for i in targets) == "3$21$"


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
    found, curves = addition_study(
        "learned",
        "padded",
        "decoder",
        1,
        [1],
        n_layers=1,
        n_heads=2,
        width=32,
        steps=250,
        rate=3e-3,
        tested=50,
    )
    assert found["token_accuracy"]["1"] > 0.6
    assert curves["loss"][-1] < 0.4 * curves["loss"][0]
