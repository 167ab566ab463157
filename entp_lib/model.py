"""A GPT-2 style pre-LN Transformer; its architectures differ in attention alone (§3, C.4).

    x = embedding + position
    x = x + attention(LN(x));  x = x + MLP(LN(x))      in every layer
    logits = W_embedding LN(x)

A ``decoder`` has a causal mask. ``entp`` has no mask and is run again on each prefix
(``entp_lib.entp``). In a ``prefix_decoder`` the tokens of the prompt all see each other. In a
``hybrid`` the first layers are causal.

Letters: B batch, T tokens, N scored positions, D width, H heads, K head width, V vocabulary (or
output width).
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib import entp, kernels
from entp_lib.arguments import after_prompts, check_inputs
from entp_lib.attention_bias import (
    NO_BIAS,
    AttentionBias,
    attention_bias,
    combine_masks,
    rotate,
)
from entp_lib.config import ModelConfig
from entp_lib.entp import MicroBatch
from entp_lib.kernels.grouping import Projected
from entp_lib.kernels.mlp import EPS
from entp_lib.positions import SCHEMES, Rotation
from entp_lib.validation import ConfigError, one_of, require

METHODS = ("fast", "reference")


def is_as_built(part: Any) -> bool:
    """Tell whether a part of a block is a linear map or a norm as this module makes them.

    A hook before it may replace its weights: pruning and weight normalisation do so.
    """
    return (
        type(part) in (nn.Linear, nn.LayerNorm)
        and part.bias is not None
        and calls(part, type(part))
        and not part._forward_pre_hooks
        and getattr(part, "eps", EPS) == EPS
    )


def calls(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Tell whether a module runs ``kind``'s ``forward``: no subclass or instance replaced it."""
    return getattr(module.forward, "__func__", None) is kind.forward


class Attention(nn.Module):
    """Multi-head attention with biases, scaled by 1/sqrt(K)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)

    def project(
        self, x_BTD: Tensor, rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (B, H, T, K); the first two are rotated."""
        q, k, v = (
            x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for x in self.qkv(x_BTD).chunk(3, dim=-1)
        )
        return rotate(q, rotation), rotate(k, rotation), v

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """Return the output (B, T, D) for T queries; ``mask`` as in ``AttentionBias``."""
        if mask is not None and mask.dtype not in (torch.bool, q.dtype):
            mask = mask.to(q.dtype)
        y_BHTK = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal
        )
        return self.out(y_BHTK.transpose(1, 2).flatten(2))

    @property
    def is_plain(self) -> bool:
        """Whether queries, keys and values are the linear maps that were built here."""
        return (
            type(self) is Attention and calls(self, Attention) and is_as_built(self.qkv)
        )


class Block(nn.Module):
    """x + attention(LN(x)), then x + MLP(LN(x)) with a tanh GELU."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.width)
        self.ln_2 = nn.LayerNorm(cfg.width)
        self.attention = Attention(cfg)
        self.fc_in = nn.Linear(cfg.width, 4 * cfg.width)
        self.fc_out = nn.Linear(4 * cfg.width, cfg.width)

    def forward(
        self,
        x_BTD: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Return the block's output (B, T, D). A decoder on a CPU uses the fused kernels.

        ``mask``, broadcast to (B, H, T, T), is boolean (True where attention is allowed) or is
        added to the scores. With ``causal`` it must be None (ConfigError).
        """
        require(not causal or mask is None, "causal: a mask goes without it")
        if causal and rotation is None and kernels.usable(self, x_BTD):
            batch, length, _ = x_BTD.shape
            projected = kernels.project(self, x_BTD.flatten(0, 1))
            x_MD = kernels.attend(
                self, projected, [(slice(batch), batch, length)], causal=True
            )
            return kernels.feed_forward(self, x_MD).view_as(x_BTD)
        q, k, v = self.attention.project(self.ln_1(x_BTD), rotation)
        return self.residual(x_BTD, self.attention(q, k, v, mask, causal))

    def residual(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return the block's output from its input and its attention's output."""
        x = x + attended
        hidden = F.gelu(self.fc_in(self.ln_2(x)), approximate="tanh")
        return x + self.fc_out(hidden)

    @property
    def is_plain(self) -> bool:
        """Whether all parts are as built here, so that fused kernels compute the same function."""
        parts = (self.attention.out, self.fc_in, self.fc_out, self.ln_1, self.ln_2)
        return (
            type(self) is Block
            and calls(self, Block)
            and self.attention.is_plain
            and all(map(is_as_built, parts))
        )


class Transformer(nn.Module):
    """Next-token logits after any set of positions: ``model(tokens, scored) -> logits_NV``.

    All architectures have the same parameters. Initial weights are drawn from ``seed`` in the order
    of the parameters, so that other positions or lengths give other weights behind them: N(0,
    0.02), or the configuration's own scale for positions and continuous inputs; N(0, 0.02 / sqrt(2
    L)) for residual output projections; 0 for biases. The head is tied to the token embedding.

    ``entp_method`` is "reference" for the loop of the definition, or "fast". ``micro_batch_tokens``
    bounds the memory of ENTP's steps (``plan``); None for a default.
    """

    def __init__(self, cfg: ModelConfig, seed: int = 0):
        super().__init__()
        self.cfg = cfg
        self.embedding: nn.Embedding | nn.Linear
        self.read_out: nn.Linear | None = None
        if cfg.input_dim is None or cfg.output_dim is None:
            self.embedding = nn.Embedding(cfg.vocab_size, cfg.width)
        else:
            self.embedding = nn.Linear(cfg.input_dim, cfg.width)
            self.read_out = nn.Linear(cfg.width, cfg.output_dim)
        self.positions = SCHEMES[cfg.positions](cfg)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layers))
        self.ln_f = nn.LayerNorm(cfg.width)
        self.entp_method = "fast"
        self.micro_batch_tokens: int | None = None
        self.init_weights(seed)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw all weights again from ``seed``, on the CPU."""
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                if name.endswith("bias"):
                    p.zero_()
                elif "ln_" in name:  # positional schemes stay as they begin
                    p.fill_(1.0)
                continue
            std = 0.02
            if name.endswith(("attention.out.weight", "fc_out.weight")):
                std /= math.sqrt(2 * self.cfg.n_layers)
            elif name == "positions.weight":
                std = self.cfg.position_std
            elif name == "embedding.weight" and self.cfg.input_dim is not None:
                std = self.cfg.input_std
            if not p.is_meta:
                drawn = torch.empty(p.shape, dtype=p.dtype, device="cpu")
                p.copy_(drawn.normal_(0.0, std, generator=generator))

    def forward(
        self,
        inputs: Tensor,
        scored: Tensor | MicroBatch | None = None,
        prompt_lengths_B: Tensor | None = None,
        positions_BT: Tensor | None = None,
        mask_BTT: Tensor | None = None,
        projected: Projected | None = None,
    ) -> Tensor:
        """Return the logits after each scored position, (N, V) in row-major order.

        ``inputs``: token ids (B, T), or vectors (B, T, input_dim) for a continuous model.
        ``scored``: a boolean mask (B, T), or a micro-batch that ``plan`` made from one; None for
        all positions. ``prompt_lengths_B``: needed by prefix decoders. Their scored positions start
        at the prompt's last token, since earlier positions see the token that they would predict.
        ``positions_BT``: position ids, by default 0, 1, 2 … ``mask_BTT``: True where a token (row)
        may see another (column), in addition to the architecture's own mask; every token must see
        itself. ``projected``: the result of ``project_once`` for the same inputs, under the same
        autocast. Raises ValueError for shapes, lengths or ids that do not fit.
        """
        micro_batch = (
            scored if isinstance(scored, MicroBatch) and scored.groups else None
        )
        scored_BT = scored.scored_BT if isinstance(scored, MicroBatch) else scored
        table = self.positions.table
        check_inputs(
            self.cfg, inputs, scored_BT, prompt_lengths_B, positions_BT, mask_BTT, table
        )
        if micro_batch and projected and mask_BTT is None:
            x_ND = entp.fast(
                self.full_blocks, projected[0], [micro_batch], NO_BIAS, projected
            )
            return self.head(self.ln_f(x_ND))
        x_BTD, bias = self.embed_inputs(inputs, positions_BT, mask_BTT)
        if prompt_lengths_B is not None and self.cfg.open_prompt:
            x_BTD = causal_pass(self.layers, x_BTD, bias, prompt_lengths_B)
            if scored_BT is None:
                scored_BT = after_prompts(inputs, prompt_lengths_B)
            x_ND = x_BTD[scored_BT]
        elif self.cfg.recomputed_layers > 1 or self.is_by_definition:
            x_ND = self.full_pass(x_BTD, micro_batch, scored_BT, bias)
        else:  # with one layer ENTP equals the decoder (appendix A.3)
            x_BTD = causal_pass(self.layers, x_BTD, bias)
            x_ND = x_BTD.flatten(0, 1) if scored_BT is None else x_BTD[scored_BT]
        return self.head(self.ln_f(x_ND))

    def embed_inputs(
        self, inputs: Tensor, positions_BT: Tensor | None, mask_BTT: Tensor | None
    ) -> tuple[Tensor, AttentionBias]:
        """Return the first block's input, (B, T, D), and the attention bias of its tokens."""
        x_BTD = self.embed(inputs, positions_BT)
        if positions_BT is None:
            positions_BT = torch.arange(inputs.shape[1], device=inputs.device)[None]
        return x_BTD, attention_bias(
            self.positions, positions_BT, mask_BTT, x_BTD.dtype
        )

    def embed(self, inputs: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """Return the input of the first block, (B, T, D)."""
        if self.cfg.input_dim is not None:
            inputs = inputs.to(self.embedding.weight.dtype)
        x_BTD = self.embedding(inputs)
        ids = slice(inputs.shape[1]) if positions_BT is None else positions_BT
        added = self.positions.embeddings(ids)
        return x_BTD if added is None else x_BTD + added

    def full_pass(
        self,
        x_BTD: Tensor,
        micro_batch: MicroBatch | None,
        scored_BT: Tensor | None,
        bias: AttentionBias,
    ) -> Tensor:
        """Return the hidden states (N, D): causal layers run once, full layers on every prefix."""
        x_BTD = causal_pass(self.causal_blocks, x_BTD, bias)
        if scored_BT is None:
            scored_BT = x_BTD.new_ones(x_BTD.shape[:2], dtype=torch.bool)
        if self.is_by_definition:
            return entp.reference(self.full_blocks, x_BTD, scored_BT, bias)
        micro_batches = [micro_batch] if micro_batch else self.plan(scored_BT)
        return entp.fast(self.full_blocks, x_BTD, micro_batches, bias)

    def head(self, x_ND: Tensor) -> Tensor:
        """Return the logits (N, V) of normed hidden states."""
        if self.read_out is None:
            return F.linear(x_ND, self.embedding.weight)
        return self.read_out(x_ND)

    def plan(self, scored_BT: Tensor) -> list[MicroBatch]:
        """Split the scored positions into micro-batches that ``forward`` takes in place of a mask.

        The losses of the micro-batches add up to the loss of the whole batch, so that memory is
        bounded. A decoder has one micro-batch, ENTP as many as its activations need.
        """
        if self.cfg.recomputed_layers < 2:
            return [MicroBatch(scored_BT)]
        one_of("entp_method", self.entp_method, METHODS)
        width = self.cfg.width
        budget = self.micro_batch_tokens or entp.micro_batch_tokens(
            scored_BT.device.type, width, self.cfg.n_layers
        )
        return entp.plan(scored_BT, budget, even=width > entp.RECORDED_WIDTH)

    def project_once(
        self,
        inputs: Tensor,
        positions_BT: Tensor | None = None,
        mask_BTT: Tensor | None = None,
    ) -> Projected | None:
        """Compute the first layer's projections once for all micro-batches of a step.

        Return None where each micro-batch computes its own.
        """
        if self.cfg.recomputed_layers < 2 or self.is_by_definition:
            return None
        x_BTD, bias = self.embed_inputs(inputs, positions_BT, mask_BTT)
        x_BTD = causal_pass(self.causal_blocks, x_BTD, bias)
        return entp.project_once(self.full_blocks, x_BTD, bias)

    @property
    def is_by_definition(self) -> bool:
        """Whether full layers are computed by the loop of the definition."""
        return self.cfg.recomputed_layers > 0 and (
            self.entp_method == "reference"
            or not all(calls(block, Block) for block in self.full_blocks)
        )

    @property
    def layers(self) -> list[Block]:
        """All blocks, in their order."""
        return cast(list[Block], list(self.blocks))

    @property
    def causal_blocks(self) -> list[Block]:
        """The first blocks, which run once on the whole sequence."""
        return self.layers[: len(self.blocks) - self.cfg.recomputed_layers]

    @property
    def full_blocks(self) -> list[Block]:
        """The last blocks, which run on each prefix."""
        return self.layers[len(self.blocks) - self.cfg.recomputed_layers :]


def causal_pass(
    blocks: Sequence[Block],
    x_BTD: Tensor,
    bias: AttentionBias = NO_BIAS,
    prompt_lengths_B: Tensor | None = None,
) -> Tensor:
    """Return the hidden states (B, T, D) after causal blocks; tokens of a prompt see each other."""
    mask = bias.mask_BHTT
    if mask is not None or prompt_lengths_B is not None:  # else attention has its own
        place_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        allowed = place_T <= place_T[:, None]
        if prompt_lengths_B is not None:
            in_prompt_BT = place_T < prompt_lengths_B[:, None]
            both_BTT = in_prompt_BT[:, None] & in_prompt_BT[:, :, None]
            allowed = (allowed | both_BTT)[:, None]
        mask = combine_masks(mask, allowed)
    for block in blocks:
        x_BTD = block(x_BTD, mask, causal=mask is None, rotation=bias.rotation)
    return x_BTD


def build_model(cfg: ModelConfig, seed: int = 0, device: str = "cpu") -> Transformer:
    """Return a model on ``device``, initialised from ``cfg`` and ``seed`` alone.

    On the device "meta" it has shapes but no weights. Raises ConfigError for a device that is not
    available.
    """
    check_device(device)
    if device == "meta":
        with torch.device("meta"):
            return Transformer(cfg, seed)
    return Transformer(cfg, seed).to(device)


def check_device(device: str) -> None:
    """Raise ConfigError for a string that names no device, or for an unavailable device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConfigError(
            f"device = {device!r}: PyTorch finds no such device here; it must be 'cpu', 'cuda', "
            "'cuda:1' … or 'meta'"
        ) from error


def parameter_count(model: nn.Module, embeddings: bool = False) -> int:
    """Count the parameters, without token and position embeddings unless asked for."""
    skipped = () if embeddings else ("embedding.", "positions.")
    return sum(
        p.numel()
        for name, p in model.named_parameters()
        if not name.startswith(skipped)
    )
