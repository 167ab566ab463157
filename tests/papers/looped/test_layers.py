"""The layer of equation (1) against its transcription, its sparse form, and weights written by name."""

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped.layers import Attention, FeedForward, Layer, SparseFeedForward, Stack, transcribe
from entp_papers.looped.weights import LayerPlan, Rows, same


def random_stack(width=7):
    g = torch.Generator().manual_seed(0)
    made = []
    for i in range(3):
        attention, ff = Attention(width, 2, 3, 4).double(), FeedForward(width, 5).double()
        for p in (*attention.parameters(), *ff.parameters()):
            p.data = torch.randn(p.shape, generator=g, dtype=torch.float64) / 3
        attention.temperature_H = torch.tensor([1.0, 0.5 + i], dtype=torch.float64)
        made.append(Layer(attention, ff, f"layer {i}"))
    return Stack(made, width)


X = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_equals_the_transcription_and_the_sparse_form():
    stack = random_stack()
    y, apply = stack(X), transcribe(stack)
    for b in range(2):
        np.testing.assert_allclose(apply(X[b].numpy().T).T, y[b].numpy(), rtol=0, atol=1e-12)
    torch.testing.assert_close(stack.sparse()(X), y, rtol=0, atol=1e-12)


def test_zero_weights_are_the_identity():
    stack = random_stack()
    for layer in stack.layers:
        layer.attention.value.weight.zero_()
        for p in layer.feed_forward.fc_out.parameters():
            p.zero_()
    assert torch.equal(stack(X), X)


def test_attention_weights_sum_to_one_and_a_causal_mask_hides_what_follows():
    attention = random_stack().layers[1].attention
    for pattern in ("full", "causal"):
        torch.testing.assert_close(attention.weights(X, pattern).sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))
    assert attention.weights(X, "causal").triu(1).abs().max() == 0


def test_restricted_attention_sees_itself_and_the_scratchpad():
    """Equal to full attention with every other score set to minus infinity."""
    attention = random_stack().layers[1].attention
    q, k = attention.queries_and_keys(X)
    s = q @ k.transpose(-1, -2) * attention.temperature_H.view(-1, 1, 1)
    seen = torch.eye(6, dtype=torch.bool)
    seen[:2], seen[:, :2] = True, True
    weights = s.masked_fill(~seen, -torch.inf).softmax(-1)
    v = attention.value(X).view(2, 6, 2, -1).transpose(1, 2)
    expected = X + attention.out((weights @ v).transpose(1, 2).reshape(2, 6, -1))
    torch.testing.assert_close(attention(X, "restricted", 2), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alone", [True, False])
def test_sparse_feed_forward_is_the_same_function(alone):
    plan = LayerPlan("test")
    plan.clear([1, 4])
    plan.unit({4: 2.0}, {4: 0.5}, 0.25)
    plan.constant = {4: -1.0}
    if not alone:
        plan.unit({1: 1.0, 2: -1.0}, {6: 3.0})
    dense = plan.build_feed_forward(8)
    thin = SparseFeedForward(dense)
    assert thin.by_coordinate == alone
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(thin(x), dense(x), rtol=0, atol=1e-14)


def test_hash_changes_with_a_weight():
    stack = random_stack()
    before = stack.weights_hash()
    assert before == random_stack().weights_hash()
    stack.layers[0].attention.key.weight[0, 0] += 1e-9
    assert before != stack.weights_hash()


def test_rows_have_names():
    rows = Rows(a=2)
    assert list(rows["a"]) == [0, 1] and list(rows.add("b")) == [2] and rows.slice("b") == slice(2, 3)
    assert same(range(2), range(3, 5)) == [{0: 1.0, 3: 1.0}, {1: 1.0, 4: 1.0}]


def test_a_value_is_added_where_all_gates_are_open():
    plan = LayerPlan("test")
    plan.add_where({0: 2.0}, {3: 1.0}, [1, 2], bound=10.0)
    ff = plan.build_feed_forward(4)
    for a, b in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
        for value in (-4.9, 0.3):
            x = torch.tensor([value, a, b, 0.0], dtype=torch.float64)
            assert ff(x)[3] == pytest.approx(2 * value if a == b == 1 else 0, abs=1e-14)


@pytest.mark.parametrize(
    ("call", "name"), [(lambda: random_stack()(X, "casual"), "pattern"), (lambda: Rows(a=1).add("a"), "'a'")]
)
def test_mistakes_are_named(call, name):
    with pytest.raises(ConfigError, match=name):
        call()
