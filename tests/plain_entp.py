"""The model and the loop that live cells of notebooks show, once: a test holds the cells equal to this text.

A cell of a notebook whose id begins with ``plain-`` is the part of this file below the line of that name. It is not
imported there: a reader is to see it, and may change it.
"""

from tqdm.auto import trange

# isort: split

# %% plain-model
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """One layer: tokens look at each other, then each is worked on by itself."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc_in, self.fc_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, causal):
        q, k, v = self.qkv(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # the whole difference
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.fc_out(F.gelu(self.fc_in(self.ln_2(x)), approximate="tanh"))


class Transformer(nn.Module):
    """Guess the next symbol after every position of sequences (batch, length)."""

    def __init__(self, symbols, length, width, heads, layers, std=0.02):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for matrix in (p for p in self.parameters() if p.dim() == 2):
            nn.init.normal_(matrix, std=std)

    def forward(self, x, causal):
        h = self.embedding(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h, causal)
        return self.ln_f(h) @ self.embedding.weight.T


def decoder(model, x, first):
    """Read once. No token looks ahead, so one pass gives every prediction from `first` tokens on."""
    return model(x, causal=True)[:, first - 1 :]


def entp(model, x, first):
    """Read every prefix anew. All its tokens see each other, and its last one predicts."""
    ends = range(first, x.shape[1] + 1)
    return torch.stack([model(x[:, :end], causal=False)[:, -1] for end in ends], dim=1)


# %% plain-loop
def learn(predict, task, steps, seed=0, rate=3e-3, every=50, **shape):
    """Train one model on `task`; return it and its curve. `seed` fixes first weights and batches."""
    torch.manual_seed(seed)
    model = Transformer(task.vocab_size, task.length, **shape)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.99))

    def loss_and_share(number, size, evaluating=False):
        batch = task.batch(torch.Generator().manual_seed(seed * 10**6 + number), size, evaluating)
        first = int(batch.scored_BT.any(0).nonzero()[0]) + 1  # the shortest prefix to be continued
        logits = predict(model, batch.inputs_BT, first)[batch.scored_BT[:, first - 1 :]]
        right = (logits.argmax(-1) == batch.targets_N).float().mean()
        return F.cross_entropy(logits, batch.targets_N), right.item()

    curve, started, warm_up = [], time.perf_counter(), steps / 10
    for step in trange(1, steps + 1, desc=predict.__name__, leave=False, disable=None):
        done = max(0, step - warm_up) / (steps - warm_up)
        slope = min(step / warm_up, 0.5 + 0.5 * math.cos(math.pi * done))
        optimizer.param_groups[0]["lr"] = rate * slope
        loss, _ = loss_and_share(step, 64)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0 or step == steps:
            with torch.no_grad():
                _, right = loss_and_share(0, 512, evaluating=True)
            point = {"step": step, "seconds": time.perf_counter() - started, "loss": loss.item()}
            curve.append({"model": predict.__name__, **point, "tokens right": right})
    return model, curve
