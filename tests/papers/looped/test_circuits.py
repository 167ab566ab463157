"""Layers: equation (1) against its transcription, restricted attention, the sparse form. Circuits:
``test_studies``.
"""

import numpy as np
import pytest
import torch

from entp_lab.studies import gaussians, seeded
from entp_papers.looped.layers import (
    Attention,
    FeedForward,
    Layer,
    LayerPlan,
    SparseFeedForward,
    Stack,
    transcribe,
)

X = gaussians(1, 2, 6, 7)


def random_stack():
    g = seeded(0)
    stack = Stack([], 7)
    for i in range(3):
        attention = Attention(7, 2, 3, 4).double()
        ff = FeedForward(7, 5).double()
        for p in (*attention.parameters(), *ff.parameters()):
            p.data = gaussians(g, *p.shape) / 3
        attention.temperature_H11[1] = 0.5 + i
        stack.layers.append(Layer(attention, ff, f"layer {i}"))
    return stack.requires_grad_(False)


def test_a_stack_equals_its_transcription_and_its_sparse_form():
    stack = random_stack()
    y = stack(X)
    apply = transcribe(stack)
    for x_TD, y_TD in zip(X.numpy(), y.numpy(), strict=True):
        np.testing.assert_allclose(apply(x_TD.T).T, y_TD, rtol=0, atol=1e-12)
    torch.testing.assert_close(stack.sparse()(X), y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alone", [True, False])
def test_a_sparse_feed_forward_is_the_same_function(alone):
    plan = LayerPlan("test")
    plan.clear([1, 4])
    plan.unit({4: 2.0}, {4: 0.5}, 0.25)
    plan.constant = {4: -1.0}
    if not alone:
        plan.unit({1: 1.0, 2: -1.0}, {6: 3.0})
    dense = plan.build(7).feed_forward
    thin = SparseFeedForward(dense)
    assert thin.by_coordinate == alone
    torch.testing.assert_close(thin(X), dense(X), rtol=0, atol=1e-14)
