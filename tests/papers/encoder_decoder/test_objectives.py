"""Three objectives on one text: the same windows, each loss by its definition, questions and
misprints.
"""

import pytest
import torch
import torch.nn.functional as F
from conftest import seeded, spread
from mistakes import named

from entp_lib.config import TrainConfig
from entp_lib.model import build_model
from entp_papers.encoder_decoder.objectives import (
    ObjectiveConfig,
    Pointer,
    candidate_losses,
    fine_tuned,
    middle_losses,
    misprinted,
    next_token_losses,
    objective_study,
    train,
)
from entp_papers.encoder_decoder.parts import full_states
from entp_papers.encoder_decoder.pretraining import (
    FROZEN,
    WAYS,
    draw_pairs,
    prepared,
    pretraining_study,
)

pytestmark = pytest.mark.usefixtures("results")  # where the text is encoded
OBJECTIVES = ("masked", "causal", "entp")
SMALL = dict(
    text=dict(corpus="README.md", split="tail", held_out=0.2, context=6, prefixes=3),
    n_layers=2,
    n_heads=2,
    width=8,
    labelled=8,
    epochs=1,
    tested=8,
    curve_windows=4,
    candidates=2,
)


STEPS = dict(steps=2, eval_every=2)
test_mistakes_are_named = named(
    (lambda: objective_study(SMALL | dict(objective="rtd"), STEPS, 0, 0), "objective = 'rtd'"),
    (lambda: pretraining_study(SMALL | dict(objective="causal"), STEPS, 0), "objective = 'causal'"),
    (lambda: misprinted(torch.zeros(4, 9, dtype=torch.long)), "one token alone"),
)


def setting(objective):
    return ObjectiveConfig(objective=objective, **SMALL)


def model_of(objective):
    model = build_model(setting(objective).model(), 0).eval()
    spread(model)
    return model


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_training_lowers_every_loss(objective):
    schedule = TrainConfig(
        steps=60, batch_size=16, max_lr=1e-2, min_lr=1e-3, warmup_steps=5, eval_every=20
    )
    _, curves, spent = train(setting(objective), schedule, 0, 0)
    losses = curves["train_loss"]
    assert losses[-1] < losses[0] - 0.2
    assert spent["cpu_seconds"] > 0
    assert spent["token_forwards"] > 0


ROWS = torch.tensor([[72, 101, 108, 108, 111, 32, 119]])


@torch.no_grad()
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_by_their_definitions(objective):
    """The next token after its prefix, and the token in the middle, which a masked model sees from
    both sides.
    """
    chosen = setting(objective)
    model = model_of(objective)
    found = next_token_losses(chosen, model, ROWS)
    read = torch.tensor([[72, 101, 108, 256]]) if objective == "masked" else ROWS[:, :3]
    states = full_states(model, read, causal=objective == "causal")
    expected = F.cross_entropy(model.head(states[:, -1])[:, :256], ROWS[:, 3])
    assert found.shape == (1, 6)
    torch.testing.assert_close(found[0, 2], expected, rtol=1e-4, atol=0)
    other = ROWS.clone()
    other[0, 5] = 33
    moved = middle_losses(chosen, model, ROWS) - middle_losses(chosen, model, other)
    assert (moved.abs() > 1e-6) == (objective == "masked")


@torch.no_grad()
def test_candidates_are_weighed_by_whole_texts():
    """p(token | both sides) over all tokens sums to 1, and is that of the joint probability."""
    chosen = setting("causal")
    model = model_of("causal").double()
    tried = ROWS.repeat(256, 1)
    tried[:, 3] = torch.arange(256)
    joint = -next_token_losses(chosen, model, tried).sum(1)
    expected = -joint.log_softmax(0)[ROWS[0, 3]]
    torch.testing.assert_close(candidate_losses(chosen, model, ROWS)[0], expected)


def test_a_misprint_is_one_token_that_differs():
    rows = torch.randint(5, (300, 7), generator=seeded(0))
    changed, places = misprinted(rows, "t")
    assert torch.equal((changed != rows).nonzero()[:, 1], places)
    assert len(set(places.tolist())) == 7
    assert torch.equal(misprinted(rows, "t")[0], changed)
    assert not torch.equal(misprinted(rows, "u")[0], changed)


def test_misprints_of_a_plain_text_can_be_learned():
    """In windows of one token but for the misprint, which token differs is found."""
    plain = torch.full((256, 6), 7)
    plain[-1] = torch.arange(6)
    learned = misprinted(plain, "learned")
    tested = misprinted(plain[156:], "tested")
    model = build_model(setting("causal").model(), 0)
    right = fine_tuned(
        Pointer(model, 0), learned, tested, epochs=12, lr=1e-2, batch_size=16, seed=0
    )
    assert right > 0.9


# Pairs of halves, and ways to fine-tune.


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_wrong_pairs_are_exchanged_or_of_two_windows(objective):
    window_BW = torch.arange(450).view(50, 9)
    pairs, wrong_B = draw_pairs(window_BW, objective, seeded(0))
    halves = pairs.view(50, 2, 4)
    first_BW = window_BW[:, :8]
    assert torch.equal((pairs == first_BW).all(1), wrong_B == 0)
    assert 0 < wrong_B.sum() < 50
    wrong = halves[wrong_B == 1]
    if objective == "sop":
        assert torch.equal(wrong.flip(1).flatten(1), first_BW[wrong_B == 1])
    else:
        assert (wrong[:, 0] // 9 != wrong[:, 1] // 9).all()
        assert (wrong[:, 1, 0] % 9 == 4).all()


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_added_weights_change_nothing_at_first_and_frozen_ones_stay_frozen(way):
    model = model_of("masked")
    pointer = Pointer(model, 0)
    before = pointer(ROWS)
    backbone = list(model.parameters())
    options = prepared(pointer, way, 1e-3, 0)
    if way != "prompt":  # which is read
        torch.testing.assert_close(pointer(ROWS), before)
    frozen = [not p.requires_grad for p in backbone if p.dim() > 1]
    assert all(frozen) if way in FROZEN else not any(frozen)
    if "groups" in options:
        trained = {p for group in options["groups"] for p in group["params"]}
        assert trained == set(pointer.parameters())
