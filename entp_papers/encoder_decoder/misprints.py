"""A downstream classification of tokens: one token of a window was replaced by another, and which one is asked.

It needs labels but no further text. A linear map of every token's final state gives its score; a softmax over the
places says where the misprint is. All weights are trained, of each model with the attention it has.

Letters: B batch, T tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.models import Transformer
from entp_lib.tasks.base import generator_for, seed_from
from entp_lib.validation import require
from entp_papers.encoder_decoder.losses import full_states

Labelled = tuple[Tensor, Tensor]  # windows (B, T) and places (B,)


def misprinted(window_BT: Tensor, *seed: int | str) -> Labelled:
    """Each window with one token, at a place drawn uniformly, replaced by a different one that the windows have.

    ConfigError where the windows have one kind of token only.
    """
    generator, (rows, length) = generator_for("cpu", "misprints", *seed), window_BT.shape
    kinds = window_BT.unique()
    require(len(kinds) >= 2, f"windows of {len(kinds)} kind of token: a misprint needs another one")
    place_B = torch.randint(length, (rows,), generator=generator)
    before_B = window_BT[torch.arange(rows), place_B]
    all_N = window_BT.flatten()
    other_B = all_N[torch.randint(len(all_N), (rows,), generator=generator)]  # as often as they come
    while (same_B := other_B == before_B).any():
        other_B[same_B] = all_N[torch.randint(len(all_N), (int(same_B.sum()),), generator=generator)]
    changed_BT = window_BT.clone()
    changed_BT[torch.arange(rows), place_B] = other_B
    return changed_BT, place_B


class Pointer(nn.Module):
    """Scores (B, T) of every place: a linear map of final states, causal where the model is a decoder."""

    def __init__(self, model: Transformer, seed: int):
        super().__init__()
        self.model, self.score = model, nn.Linear(model.cfg.width, 1)
        with torch.no_grad():
            self.score.weight.normal_(0, 0.02, generator=torch.Generator().manual_seed(seed))
            self.score.bias.zero_()

    def forward(self, tokens_BT: Tensor) -> Tensor:
        states_BTD = full_states(self.model, tokens_BT, causal=self.model.cfg.architecture == "decoder")
        return self.score(states_BTD)[..., 0]


def fine_tuned(
    model: Transformer, learned: Labelled, asked: Labelled, *, epochs: int, lr: float, batch_size: int, seed: int
) -> float:
    """Share of the asked windows whose misprint has the largest score, after learning all weights; rate falls to 0."""
    pointer = Pointer(model, seed_from("score", seed)).train()
    optimizer = torch.optim.AdamW(pointer.parameters(), lr=lr, weight_decay=0.01)
    windows_BT, places_B = learned
    steps, step = epochs * -(-len(windows_BT) // batch_size), 0
    for epoch in range(epochs):
        order = torch.randperm(len(windows_BT), generator=generator_for("cpu", "misprint order", seed, epoch))
        for pick in order.split(batch_size):
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / steps)
            F.cross_entropy(pointer(windows_BT[pick]), places_B[pick]).backward()
            nn.utils.clip_grad_norm_(pointer.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
    pointer.eval()
    with torch.no_grad():
        parts = zip(*(x.split(256) for x in asked), strict=True)
        return sum(int((pointer(part).argmax(-1) == places).sum()) for part, places in parts) / len(asked[1])
