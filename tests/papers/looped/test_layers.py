"""The layer of equation (1): equal to its transcription, and what it is with weights of zero."""

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped.layers import Attention, FeedForward, Layer, SparseFeedForward, Stack, sparse
from entp_papers.looped.plan import LayerPlan, Rows, same
from entp_papers.looped.transcription import transcribe


def random_stack(seed=0, width=7, layers=3):
    g = torch.Generator().manual_seed(seed)
    made = []
    for i in range(layers):
        attention, ff = Attention(width, 2, 3, 4).double(), FeedForward(width, 5).double()
        for p in (*attention.parameters(), *ff.parameters()):
            p.data = torch.randn(p.shape, generator=g, dtype=torch.float64) / 3
        attention.temperature_H = torch.tensor([1.0, 0.5 + i], dtype=torch.float64)
        made.append(Layer(attention, ff, f"layer {i}"))
    return Stack(made, width)


def test_equals_the_transcription():
    stack = random_stack()
    x = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y, apply = stack(x), transcribe(stack)
    for b in range(2):
        np.testing.assert_allclose(apply(x[b].numpy().T).T, y[b].numpy(), rtol=0, atol=1e-12)


def test_zero_weights_are_the_identity():
    stack = random_stack()
    for layer in stack.layers:
        layer.attention.value.weight.zero_()
        for p in layer.feed_forward.fc_out.parameters():
            p.zero_()
    x = torch.randn(1, 6, 7, dtype=torch.float64)
    assert torch.equal(stack(x), x)


def test_attention_weights_sum_to_one_and_a_causal_mask_hides_what_follows():
    attention = random_stack().layers[1].attention
    x = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for pattern in ("full", "causal"):
        torch.testing.assert_close(attention.weights(x, pattern).sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))
    assert attention.weights(x, "causal").triu(1).abs().max() == 0


def test_restricted_attention_sees_itself_and_the_scratchpad():
    """Equal to full attention with every other score set to minus infinity."""
    attention = random_stack().layers[1].attention
    x = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    q, k = attention.queries_and_keys(x)
    s = q @ k.transpose(-1, -2) * attention.temperature_H.view(-1, 1, 1)
    seen = torch.eye(6, dtype=torch.bool)
    seen[:2], seen[:, :2] = True, True
    weights = s.masked_fill(~seen, -torch.inf).softmax(-1)
    v = attention.value(x).view(2, 6, 2, -1).transpose(1, 2)
    expected = x + attention.out((weights @ v).transpose(1, 2).reshape(2, 6, -1))
    torch.testing.assert_close(attention(x, "restricted", 2), expected, rtol=0, atol=1e-12)


def test_unknown_pattern():
    with pytest.raises(ConfigError, match="did you mean 'causal'"):
        random_stack()(torch.zeros(1, 2, 7, dtype=torch.float64), "casual")


@pytest.mark.parametrize("alone", [True, False])
def test_sparse_feed_forward_is_the_same_function(alone):
    plan = LayerPlan("test")
    plan.clear([1, 4])
    plan.unit({4: 2.0}, {4: 0.5}, 0.25)
    plan.constant = {4: -1.0}
    if not alone:
        plan.unit({1: 1.0, 2: -1.0}, {6: 3.0})
    dense = plan.build_feed_forward(8, torch.float64)
    thin = SparseFeedForward(dense)
    assert thin.by_coordinate == alone
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(thin(x), dense(x), rtol=0, atol=1e-14)


def test_sparse_stack_is_the_same_function():
    stack = random_stack()
    x = torch.randn(2, 6, 7, dtype=torch.float64)
    torch.testing.assert_close(sparse(stack)(x), stack(x), rtol=0, atol=1e-12)


def test_hash_changes_with_a_weight():
    stack = random_stack()
    before = stack.weights_hash()
    assert before == random_stack().weights_hash()
    stack.layers[0].attention.key.weight[0, 0] += 1e-9
    assert before != stack.weights_hash()


def test_rows_are_named_once():
    rows = Rows()
    assert list(rows.add("a", 2)) == [0, 1] and list(rows.add("b")) == [2]
    assert rows.slice("a", "b") == slice(0, 3) and "a" in rows and "c" not in rows
    with pytest.raises(ConfigError, match="'a' exist already"):
        rows.add("a")
    assert same(range(2), range(3, 5), weight=2.0) == [{0: 2.0, 3: 2.0}, {1: 2.0, 4: 2.0}]


def test_a_value_is_added_where_all_gates_are_open():
    plan = LayerPlan("test")
    plan.add_where({0: 2.0}, {3: 1.0}, [1, 2], bound=10.0)
    ff = plan.build_feed_forward(4, torch.float64)
    for a in (0.0, 1.0):
        for b in (0.0, 1.0):
            for value in (-4.9, 0.3):
                x = torch.tensor([value, a, b, 0.0], dtype=torch.float64)
                assert ff(x)[3] == pytest.approx(2 * value if a == b == 1 else 0, abs=1e-14)
