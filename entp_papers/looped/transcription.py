"""Equation (1) written out in numpy, a token per column as in the paper: the oracle of ``layers``, and its yardstick.

Letters: D width, T tokens, H heads, K key width, V value width.
"""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from entp_papers.looped.layers import Layer, Stack


def weight(linear) -> ndarray:
    return linear.weight.detach().numpy()


def transcribe_layer(layer: Layer) -> Callable[[ndarray], ndarray]:
    """The function of a state X (D, T) that the layer's own weights define."""
    heads = []
    if (attention := layer.attention) is not None:
        H = attention.heads
        q, k, v = (np.split(weight(m), H) for m in (attention.query, attention.key, attention.value))
        out = np.split(weight(attention.out), H, axis=1)
        heads = list(zip(q, k, v, out, attention.temperature_H.tolist(), strict=True))

    def apply(x_DT: ndarray) -> ndarray:
        attended = x_DT.copy()
        for q_KD, k_KD, v_VD, out_DV, heat in heads:
            s_TT = heat * ((k_KD @ x_DT).T @ (q_KD @ x_DT))
            s_TT = np.exp(s_TT - s_TT.max(0))
            attended += out_DV @ (v_VD @ x_DT) @ (s_TT / s_TT.sum(0))
        if (ff := layer.feed_forward) is None:
            return attended
        b_1, b_2 = (m.bias.detach().numpy()[:, None] for m in (ff.fc_in, ff.fc_out))
        return attended + weight(ff.fc_out) @ np.maximum(weight(ff.fc_in) @ attended + b_1, 0) + b_2

    return apply


def transcribe(stack: Stack) -> Callable[[ndarray], ndarray]:
    """One pass of the loop as a function of a state X (D, T)."""
    layers = [transcribe_layer(layer) for layer in stack.layers]

    def apply(x_DT: ndarray) -> ndarray:
        for layer in layers:
            x_DT = layer(x_DT)
        return x_DT

    return apply
