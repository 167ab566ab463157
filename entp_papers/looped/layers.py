"""The Transformer layer of *Looped Transformers as Programmable Computers* (eq. 1), and stacks that run in a loop.

    Attn(X) = X + Σ_h V_h X softmax(λ_h X^T K_h^T Q_h X)          (1a)
    f(X)    = Attn(X) + W_2 relu(W_1 Attn(X) + b_1) + b_2         (1b)

No LayerNorm, no 1/√width, no causal mask: an encoder. The paper writes a token as a column of X, here it is a row of
x_BTD. V_h has the rank of the values that a head copies and is stored as two factors, ``value`` and ``out``.

Letters: B batch, T tokens, D width, H heads, K key width, V value width, F hidden units, P scratchpad tokens.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from entp_lib.validation import one_of

PATTERNS = ("full", "causal", "restricted")


class Attention(nn.Module):
    """Softmax attention (1a) whose weights are zero until they are written.

    ``temperature_H`` is the paper's λ: it multiplies the scores.
    """

    def __init__(self, width: int, heads: int, key_width: int, value_width: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * key_width, bias=False)
        self.key = nn.Linear(width, heads * key_width, bias=False)
        self.value = nn.Linear(width, heads * value_width, bias=False)
        self.out = nn.Linear(heads * value_width, width, bias=False)
        self.register_buffer("temperature_H", torch.ones(heads))

    def queries_and_keys(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Both (B, H, T, K)."""
        B, T, _ = x_BTD.shape
        q_BHTK = self.query(x_BTD).view(B, T, self.heads, -1).transpose(1, 2)
        k_BHTK = self.key(x_BTD).view(B, T, self.heads, -1).transpose(1, 2)
        return q_BHTK, k_BHTK

    def weights(self, x_BTD: Tensor, pattern: str = "full") -> Tensor:
        """Attention weights (B, H, T, T), query by key; every row sums to 1."""
        q_BHTK, k_BHTK = self.queries_and_keys(x_BTD)
        s_BHTT = q_BHTK @ k_BHTK.transpose(-1, -2) * self.temperature_H.view(-1, 1, 1)
        if pattern == "causal":
            T = x_BTD.shape[1]
            s_BHTT = s_BHTT.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)
        return s_BHTT.softmax(-1)

    def forward(self, x_BTD: Tensor, pattern: str = "full", scratchpad: int = 1) -> Tensor:
        """x + attention. ``restricted`` is linear in T: see ``attend_restricted``."""
        one_of("pattern", pattern, PATTERNS)
        B, T, _ = x_BTD.shape
        v_BHTV = self.value(x_BTD).view(B, T, self.heads, -1).transpose(1, 2)
        if pattern == "restricted":
            read_BHTV = self.attend_restricted(x_BTD, v_BHTV, scratchpad)
        else:
            read_BHTV = self.weights(x_BTD, pattern) @ v_BHTV
        return x_BTD + self.out(read_BHTV.transpose(1, 2).reshape(B, T, -1))

    def attend_restricted(self, x_BTD: Tensor, v_BHTV: Tensor, P: int) -> Tensor:
        """Attention where the first P tokens see all and any other token sees itself and the first P (§5.2).

        λ is applied to finished scores: sums of ±1 are exact, and ties must stay ties.
        """
        q_BHTK, k_BHTK = self.queries_and_keys(x_BTD)
        heat_H11 = self.temperature_H.view(-1, 1, 1)
        top_BHPV = (q_BHTK[:, :, :P] @ k_BHTK.transpose(-1, -2) * heat_H11).softmax(-1) @ v_BHTV
        own_BHR1 = (q_BHTK[:, :, P:] * k_BHTK[:, :, P:]).sum(-1, keepdim=True)
        to_scratchpad_BHRP = q_BHTK[:, :, P:] @ k_BHTK[:, :, :P].transpose(-1, -2)
        weights = (torch.cat([to_scratchpad_BHRP, own_BHR1], -1) * heat_H11).softmax(-1)
        rest_BHRV = weights[..., :P] @ v_BHTV[:, :, :P] + weights[..., P:] * v_BHTV[:, :, P:]
        return torch.cat([top_BHPV, rest_BHRV], 2)


class FeedForward(nn.Module):
    """x + W_2 relu(W_1 x + b_1) + b_2 (1b)."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.fc_in, self.fc_out = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD + self.fc_out(torch.relu(self.fc_in(x_BTD)))


class SparseFeedForward(nn.Module):
    """The same function as a ``FeedForward``, reading and writing only the coordinates whose weights are not zero.

    Where every unit reads one coordinate and writes that one only, as in error correction, no matrix is left: the
    units of a coordinate are applied one after the other.
    """

    def __init__(self, dense: FeedForward):
        super().__init__()
        w_in_FD, w_out_DF = dense.fc_in.weight.detach(), dense.fc_out.weight.detach()
        reads_D, writes_D = (w_in_FD != 0).any(0), (w_out_DF != 0).any(1) | (dense.fc_out.bias != 0)
        self.register_buffer("reads", reads_D.nonzero()[:, 0])
        self.register_buffer("writes", writes_D.nonzero()[:, 0])
        self.register_buffer("bias_out", dense.fc_out.bias.detach()[writes_D])
        own_F = w_in_FD.abs().argmax(1)
        alone = (w_in_FD != 0).sum(1).eq(1) & (w_out_DF != 0).sum(0).eq(1) & w_out_DF.abs().argmax(0).eq(own_F)
        self.by_coordinate = bool(alone.all()) and torch.equal(self.reads, self.writes)
        if not self.by_coordinate:
            self.register_buffer("w_in", w_in_FD[:, reads_D].T.contiguous())
            self.register_buffer("b_in", dense.fc_in.bias.detach().clone())
            self.register_buffer("w_out", w_out_DF[writes_D].T.contiguous())
            return
        units = torch.zeros(3, int(torch.bincount(own_F).max()), len(self.reads), dtype=w_in_FD.dtype)
        for i, d in enumerate(self.reads):
            own = own_F == d
            units[:, : own.sum(), i] = torch.stack([w_in_FD[own, d], dense.fc_in.bias.detach()[own], w_out_DF[d, own]])
        self.register_buffer("units", units)

    def forward(self, x_BTD: Tensor) -> Tensor:
        z = x_BTD[..., self.reads]
        if self.by_coordinate:
            change = self.bias_out.expand_as(z).clone()
            for w_in, b_in, w_out in zip(*self.units, strict=True):
                change.addcmul_(torch.addcmul(b_in, z, w_in).relu_(), w_out)
        else:
            hidden = torch.addmm(self.b_in, z.flatten(0, 1), self.w_in).relu_()
            change = torch.addmm(self.bias_out, hidden, self.w_out).view(*x_BTD.shape[:2], -1)
        return x_BTD.index_add(-1, self.writes, change)


class Layer(nn.Module):
    """One Transformer layer; ``purpose`` is its purpose in words. Either half may be missing (weights all zero)."""

    def __init__(self, attention: Attention | None, feed_forward: nn.Module | None, purpose: str):
        super().__init__()
        self.attention, self.feed_forward, self.purpose = attention, feed_forward, purpose

    def forward(self, x_BTD: Tensor, pattern: str = "full", scratchpad: int = 1) -> Tensor:
        if self.attention is not None:
            x_BTD = self.attention(x_BTD, pattern, scratchpad)
        return x_BTD if self.feed_forward is None else self.feed_forward(x_BTD)


class Stack(nn.Module):
    """Layers one after the other; one call is one pass of the loop.

    ``scratchpad`` is the number of its tokens, which come first. ``width`` is the number of coordinates of a token.
    """

    def __init__(self, layers: list[Layer], width: int, scratchpad: int = 1):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.width, self.scratchpad = width, scratchpad
        self.requires_grad_(False)

    def forward(self, x_BTD: Tensor, pattern: str = "full") -> Tensor:
        for layer in self.layers:
            x_BTD = layer(x_BTD, pattern, self.scratchpad)
        return x_BTD

    def sparse(self) -> "Stack":
        """The same function with every ``FeedForward`` as a ``SparseFeedForward``; attention is shared."""
        halves = [(m.attention, m.feed_forward, m.purpose) for m in self.layers]
        thin = [Layer(a, None if ff is None else SparseFeedForward(ff), purpose) for a, ff, purpose in halves]
        return Stack(thin, self.width, self.scratchpad)

    def size(self) -> dict[str, int]:
        """Layers, heads (of the layer that has most), width, hidden units and weights, counted."""
        return {
            "layers": len(self.layers),
            "heads": max((m.heads for m in self.modules() if isinstance(m, Attention)), default=0),
            "width": self.width,
            "hidden": max((m.fc_in.out_features for m in self.modules() if isinstance(m, FeedForward)), default=0),
            "weights": sum(p.numel() for p in self.parameters()),
        }

    def weights_hash(self) -> str:
        """Sixteen hexadecimal digits that change with any weight."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def transcribe(stack: Stack) -> Callable[[ndarray], ndarray]:
    """Equation (1) in numpy, a token per column as in the paper: one pass over X (D, T), the oracle of the tests."""

    def weight(linear: nn.Linear) -> ndarray:
        return linear.weight.detach().numpy()

    layers = []
    for layer in stack.layers:
        heads = []
        if (attention := layer.attention) is not None:
            H = attention.heads
            q, k, v = (np.split(weight(m), H) for m in (attention.query, attention.key, attention.value))
            out = np.split(weight(attention.out), H, axis=1)
            heads = list(zip(q, k, v, out, attention.temperature_H.tolist(), strict=True))
        layers.append((heads, layer.feed_forward))

    def apply(x_DT: ndarray) -> ndarray:
        for heads, ff in layers:
            attended = x_DT.copy()
            for q_KD, k_KD, v_VD, out_DV, heat in heads:
                s_TT = heat * ((k_KD @ x_DT).T @ (q_KD @ x_DT))
                s_TT = np.exp(s_TT - s_TT.max(0))
                attended += out_DV @ (v_VD @ x_DT) @ (s_TT / s_TT.sum(0))
            if ff is not None:
                b_1, b_2 = (m.bias.detach().numpy()[:, None] for m in (ff.fc_in, ff.fc_out))
                attended += weight(ff.fc_out) @ np.maximum(weight(ff.fc_in) @ attended + b_1, 0) + b_2
            x_DT = attended
        return x_DT

    return apply
