"""Post-norm layers: masks, padding, order, and the faults that are named."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.layers import Shape, attention_mask, random_stack

SMALL = dict(n_layers=2, n_heads=2, width=8, hidden=12, vocab_size=7, max_length=9)
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 3, 5]])


@given(length=st.integers(2, 9), at=st.integers(0, 8), causal=st.booleans())
def test_who_sees_a_changed_token(length, at, causal):
    at = at % length
    stack = random_stack(Shape(**SMALL, causal=causal, activation="gelu" if causal else "relu"), 0)
    tokens = torch.arange(length)[None] % 7
    other = tokens.clone()
    other[:, at] = (other[:, at] + 1) % 7
    moved = (stack(tokens) - stack(other)).detach().abs().amax(-1)[0] > 1e-9
    assert moved.tolist() == [t >= at or not causal for t in range(length)]


def test_padding_is_not_seen_and_the_rest_is():
    stack = random_stack(Shape(**SMALL), 1)
    visible = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    found = stack(TOKENS, visible)
    torch.testing.assert_close(found[:1, :3], stack(TOKENS[:1, :3]))
    torch.testing.assert_close(found[1], stack(TOKENS)[1])


def test_an_encoder_without_positions_is_a_function_of_a_bag():
    stack, order = random_stack(Shape(**{**SMALL, "max_length": 0}), 2), torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(stack(TOKENS)[:, order], stack(TOKENS[:, order]))
    positioned = random_stack(Shape(**SMALL), 2)
    assert not torch.allclose(positioned(TOKENS)[:, order], positioned(TOKENS[:, order]))


def test_dropout_is_off_in_evaluation_and_on_in_training():
    stack = random_stack(Shape(**SMALL, dropout=0.5), 3)
    assert torch.equal(stack(TOKENS), stack(TOKENS))
    stack.train()
    assert not torch.equal(stack(TOKENS), stack(TOKENS))


@pytest.mark.parametrize(
    ("visible", "message"),
    [
        (torch.ones(2, 4, dtype=torch.bool), r"visible of shape \(2, 4\).*must be boolean \(B, 5\)"),
        (torch.ones(2, 5), "type torch.float32"),
        (torch.tensor([[True] * 5, [False] * 5]), "token 0 of row 1 sees no token at all"),
    ],
)
def test_masks_that_cannot_be_are_named(visible, message):
    with pytest.raises(ValueError, match=message):
        random_stack(Shape(**SMALL), 0)(TOKENS, visible)


def test_left_padding_leaves_a_causal_token_with_nothing():
    with pytest.raises(ValueError, match="token 0 of row 0 sees no token"):
        attention_mask(3, True, torch.tensor([[False, True, True]]))
    assert attention_mask(3, False, None) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(n_heads=3), "width = 8 is not divisible by n_heads = 3"),
        (dict(hidden=0), "hidden = 0: must be at least 1"),
        (dict(max_length=-1), "max_length = -1: must be 1 or more"),
        (dict(activation="swish"), "activation = 'swish'"),
    ],
)
def test_shapes_that_cannot_be_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        Shape(**{**SMALL, **change})


def test_a_text_beyond_the_table_is_named():
    with pytest.raises(ValueError, match="10 tokens: beyond the 9 positions"):
        random_stack(Shape(**SMALL), 0)(torch.zeros(1, 10, dtype=torch.long))
