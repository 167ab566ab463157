"""A Transformer with any scheme of positions, as decoder or as ENTP.

The blocks are those of the shared model. ENTP runs every wanted prefix in a row of its own, padding masked out, and
reads the last layer at the prefix's end only: plain enough for sequences as short as sums are.

Letters: B batch, T tokens, N wanted prefixes, D width, H heads, K head width, V vocabulary.
"""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.models.transformer import Block
from entp_lib.validation import one_of
from entp_papers.compact.positions import build_scheme

ARCHITECTURES = ("decoder", "entp")


@lru_cache
def causal_mask(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 where a query may look, -inf ahead of it, (T, T)."""
    mask = torch.zeros(length, length, dtype=dtype, device=device)
    return mask.masked_fill(torch.ones_like(mask, dtype=torch.bool).triu(1), -math.inf)


class PositionedTransformer(nn.Module):
    """``model(tokens_BT, wanted_BT, ids_BT) -> logits_NV`` after each wanted position, in row-major order.

    ``ids_BT``: position ids of schemes that take any; None for 0, 1, 2, … Weights depend on ``seed`` alone, those of
    the blocks not on the scheme. Raises ConfigError for an unknown scheme or architecture.
    """

    def __init__(self, cfg: ModelConfig, positions: str, seed: int = 0):
        super().__init__()
        one_of("architecture", cfg.architecture, ARCHITECTURES)
        self.cfg, self.causal = cfg, cfg.architecture == "decoder"
        self.embedding = nn.Embedding(cfg.vocab_size, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layers))
        self.ln_f = nn.LayerNorm(cfg.width)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.scheme = build_scheme(positions, cfg.width, cfg.n_heads, cfg.max_length, self.causal)
        self.init_weights(seed)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """N(0, 0.02) as the shared model's, residual outputs less with depth; a scheme's tables alike."""
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if name.startswith("scheme."):
                if name.endswith("table.weight"):
                    p.normal_(0.0, 0.02, generator=torch.Generator().manual_seed(seed + 1))
            elif p.dim() > 1:
                residual = name.endswith(("attention.out.weight", "fc_out.weight"))
                p.normal_(0.0, 0.02 / (math.sqrt(2 * self.cfg.n_layers) if residual else 1), generator=generator)
            elif not name.endswith("weight"):
                p.zero_()

    def forward(self, tokens_BT: Tensor, wanted_BT: Tensor, ids_BT: Tensor | None = None) -> Tensor:
        length = tokens_BT.shape[1]
        if ids_BT is None:
            ids_BT = torch.arange(length, device=tokens_BT.device).expand_as(tokens_BT)
        x_BTD = self.scheme.embed(self.embedding(tokens_BT), ids_BT)
        bias_HTT = self.scheme.bias(length)
        x_ND = (self.one_pass if self.causal else self.prefixes)(x_BTD, wanted_BT, bias_HTT)
        return F.linear(self.ln_f(x_ND), self.embedding.weight)

    def one_pass(self, x_BTD: Tensor, wanted_BT: Tensor, bias_HTT: Tensor | None) -> Tensor:
        mask = causal_mask(x_BTD.shape[1], x_BTD.dtype, x_BTD.device)
        mask = mask if bias_HTT is None else mask + bias_HTT
        for block in self.blocks:
            q, k, v = self.project(block, x_BTD)
            x_BTD = block.residual(x_BTD, block.attention(q, k, v, mask, False))
        return x_BTD[wanted_BT]

    def prefixes(self, x_BTD: Tensor, wanted_BT: Tensor, bias_HTT: Tensor | None) -> Tensor:
        rows_N, ends_N = wanted_BT.nonzero(as_tuple=True)
        here_N = torch.arange(len(rows_N), device=x_BTD.device)
        x_NTD = x_BTD[rows_N]
        hidden_N11T = (torch.arange(x_BTD.shape[1], device=x_BTD.device) > ends_N[:, None])[:, None, None]
        mask = torch.zeros(hidden_N11T.shape, dtype=x_BTD.dtype, device=x_BTD.device)
        mask = mask.masked_fill(hidden_N11T, -math.inf)
        mask = mask if bias_HTT is None else mask + bias_HTT
        for block in self.blocks[:-1]:
            q, k, v = self.project(block, x_NTD)
            x_NTD = block.residual(x_NTD, block.attention(q, k, v, mask, False))
        last = self.blocks[-1]
        q, k, v = self.project(last, x_NTD)
        mask = mask if bias_HTT is None else mask[here_N, :, ends_N][:, :, None]
        attended = last.attention(q[here_N, :, ends_N][:, :, None], k, v, mask, False)[:, 0]
        return last.residual(x_NTD[here_N, ends_N], attended)

    def project(self, block: nn.Module, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = block.attention.project(block.ln_1(x_BTD))
        return self.scheme.turn(q), self.scheme.turn(k), v
