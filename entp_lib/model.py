"""A GPT-2 style pre-LN Transformer whose architecture is a matter of attention alone.

Letters: B batch, T tokens, N scored positions, D width, H heads, K head width, V vocabulary (or output width).
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib import entp, kernels
from entp_lib.arguments import after_prompts, check_inputs
from entp_lib.config import ModelConfig
from entp_lib.entp import Part
from entp_lib.kernels.grouping import Projected
from entp_lib.positions import SCHEMES
from entp_lib.relations import NOTHING, Relations, Rotation, masked, relations_of, rotate
from entp_lib.validation import ConfigError

METHODS = {"fast": None, "reference": None, "grouped": False, "packed": True}  # whether prefixes are packed in rows
NOT_IN_ONE_GRAPH = (
    "full layers are planned by the entries of `scored`, which fullgraph=True does not know: pass a part of "
    "model.plan(scored), or no `scored` for all positions, or compile without fullgraph=True"
)


class Attention(nn.Module):
    """Multi-head attention with biases, scaled by 1/sqrt(K)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)

    def project(self, x_BTD: Tensor, rotation: Rotation | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T, K); queries and keys turned by ``rotation``."""
        q, k, v = (self.split(x) for x in self.qkv(x_BTD).chunk(3, dim=-1))
        return rotate(q, rotation), rotate(k, rotation), v

    def split(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Attention output after the output projection, (B, T, D) for T queries; ``mask`` as in ``Relations``."""
        if mask is not None and mask.dtype not in (torch.bool, q.dtype):
            mask = mask.to(q.dtype)
        y_BHTK = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(y_BHTK.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(LN(x)), then x + MLP(LN(x)) with a tanh GELU."""

    fusible = True  # whether the fused kernels compute the same

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.attention = Attention(cfg)
        self.fc_in = nn.Linear(cfg.width, 4 * cfg.width)
        self.fc_out = nn.Linear(4 * cfg.width, cfg.width)

    def forward(
        self, x_BTD: Tensor, mask: Tensor | None = None, causal: bool = False, rotation: Rotation | None = None
    ) -> Tensor:
        """The block over whole sequences (B, T, D); in a decoder on a CPU by the fused kernels.

        ``mask`` (broadcast to (B, H, T, T)): True where attention is allowed, or added to the scores; with ``causal``
        there is none.
        """
        plain = causal and rotation is None and self.fusible
        if plain and kernels.usable(x_BTD, dropout=0.0):
            batch, length, _ = x_BTD.shape
            projected = kernels.project(self, x_BTD.flatten(0, 1))
            x_MD = kernels.attend(self, projected, [(None, batch, length)], causal=True)
            return kernels.feed_forward(self, x_MD).view_as(x_BTD)
        q, k, v = self.attention.project(self.ln_1(x_BTD), rotation)
        return self.residual(x_BTD, self.attention(q, k, v, mask, causal))

    def residual(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        hidden = F.gelu(self.fc_in(self.ln_2(x)), approximate="tanh")
        return x + self.fc_out(hidden)


class Transformer(nn.Module):
    """Next-token logits after any set of positions: ``model(inputs, scored, prompt_lengths) -> logits_NV``.

    All architectures have the same parameters. Initial weights: N(0, 0.02) unless the configuration has another
    scale for positions and continuous inputs, residual output projections N(0, 0.02/sqrt(2L)), biases 0, from
    ``seed`` alone; the head is tied to the token embedding.

    ``entp_method`` is "fast" (by device one of "grouped" and "packed", which may be asked for), or "reference" for the
    loop of the definition.
    """

    def __init__(self, cfg: ModelConfig, seed: int = 0):
        super().__init__()
        self.cfg = cfg
        if cfg.input_dim is None:
            self.embedding, self.read_out = nn.Embedding(cfg.vocab_size, cfg.width), None
        else:
            self.embedding = nn.Linear(cfg.input_dim, cfg.width)
            self.read_out = nn.Linear(cfg.width, cfg.output_dim)
        self.positions = SCHEMES[cfg.positions](cfg)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layers))
        self.ln_f = nn.LayerNorm(cfg.width)
        self.entp_method = "fast"
        self.init_weights(seed)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                if not name.endswith("weight"):
                    p.zero_()  # LayerNorm weights stay 1
                continue
            std = 0.02
            if name.endswith(("attention.out.weight", "fc_out.weight")):
                std /= math.sqrt(2 * self.cfg.n_layers)
            elif name == "positions.weight":
                std = self.cfg.position_std
            elif name == "embedding.weight" and self.cfg.input_dim is not None:
                std = self.cfg.input_std
            p.normal_(0.0, std, generator=generator)

    def plan(self, scored_BT: Tensor) -> list[Part]:
        """The scored positions in parts, each of which the model takes in place of a mask, so that memory is bounded.

        Their losses add up to the loss of the whole. A decoder has one part; ENTP as many as its activations need.
        """
        if self.cfg.recomputed_layers < 2:
            return [Part(scored_BT)]
        if self.entp_method not in METHODS:
            raise ValueError(f"entp_method = {self.entp_method!r}: must be one of {', '.join(METHODS)}")
        if torch.compiler.is_compiling():  # where it may not break, with fullgraph=True, the message is the error
            torch._dynamo.graph_break(msg=NOT_IN_ONE_GRAPH)
        tokens, width, device = scored_BT.shape[1], self.cfg.width, scored_BT.device.type
        pack = METHODS[self.entp_method]
        if pack is None:
            # Groups launch kernels for every length and layer, packed rows a handful a layer; but they compute about
            # T² / 3 masked scores a row, T / 18 D of the work of its linear maps. Not measured on a GPU yet:
            # ``benchmarks.engine`` does.
            pack = device == "cuda" and tokens <= 2 * width
        even = width > entp.RECORDED_WIDTH
        return entp.plan(scored_BT, entp.micro_batch_tokens(device, width, tokens), pack, even)

    def shared(
        self, inputs: Tensor, positions_BT: Tensor | None = None, mask_BTT: Tensor | None = None
    ) -> Projected | None:
        """Compute once what all parts of a step have in common, for ``forward``: embedded tokens, first projections.

        None where each part computes it for itself.
        """
        full = self.cfg.recomputed_layers
        if full < 2 or self.entp_method not in ("fast", "grouped"):
            return None
        x_BTD, relations = self.embedded(inputs, positions_BT, mask_BTT)
        return entp.shared(self.full_blocks, causal_pass(self.blocks[:-full], x_BTD, relations), relations)

    def forward(
        self,
        inputs: Tensor,
        scored: Tensor | Part | None = None,
        prompt_lengths_B: Tensor | None = None,
        positions_BT: Tensor | None = None,
        mask_BTT: Tensor | None = None,
        projected: Projected | None = None,
    ) -> Tensor:
        """Logits after each scored position, (N, V) in row-major order.

        ``inputs``: token ids (B, T), or (B, T, input_dim) of a continuous model. ``scored``: boolean (B, T), or a part
        of what ``plan`` made of such a mask; None for all positions. Of a model with full layers ``torch.compile`` with
        ``fullgraph=True`` takes None or a part, ``torch.export`` and the meta device None. ``prompt_lengths_B`` is the
        prefix decoder's, whose scored positions start at the prompt's last token: before, they would see what they
        predict. ``positions_BT``: position ids, 0, 1, 2 … unless given. ``mask_BTT``: True where a token (row) may see
        another (column), itself always, apart from what the architecture hides. ``projected``: what ``shared`` made of
        the same inputs.
        Raises ValueError for shapes, lengths and ids that do not fit.
        """
        scored_BT = scored.scored_BT if isinstance(scored, Part) else scored
        check_inputs(self.cfg, inputs, scored_BT, prompt_lengths_B, positions_BT, mask_BTT, self.positions.table)
        if scored_BT is None and self.cfg.open_prompt:
            scored_BT = after_prompts(inputs, prompt_lengths_B)
        everywhere = scored_BT is None
        if everywhere:
            scored_BT = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        if projected is not None:
            return self.head(self.ln_f(entp.fast(self.full_blocks, projected[0], [scored], NOTHING, projected)))
        x_BTD, relations = self.embedded(inputs, positions_BT, mask_BTT)
        full = self.cfg.recomputed_layers
        slow = self.entp_method == "reference" and full > 0
        if full < 2 and not slow:  # with one layer ENTP is the decoder (appendix A.3)
            x_BTD = self.one_pass(x_BTD, prompt_lengths_B, relations)
            x_ND = x_BTD.flatten(0, 1) if everywhere else x_BTD[scored_BT]
        else:
            blocks = self.full_blocks
            x_BTD = causal_pass(self.blocks[:-full], x_BTD, relations)
            shapes_alone = inputs.device.type == "meta" or torch.compiler.is_compiling()  # no entries to plan by
            if slow:
                x_ND = entp.reference(blocks, x_BTD, scored_BT, relations)
            else:
                known = [entp.whole(scored_BT)] if everywhere and shapes_alone else None
                parts = [scored] if isinstance(scored, Part) else known or self.plan(scored_BT)
                x_ND = entp.fast(blocks, x_BTD, parts, relations)
        return self.head(self.ln_f(x_ND))

    def one_pass(self, x_BTD: Tensor, prompt_lengths_B: Tensor | None, relations: Relations = NOTHING) -> Tensor:
        """Hidden states (B, T, D) of a decoder, or of a prefix decoder, whose mask leaves the prompt open."""
        if not self.cfg.open_prompt:
            return causal_pass(self.blocks, x_BTD, relations)
        bias = masked(relations.bias_BHTT, prefix_mask(prompt_lengths_B, x_BTD.shape[1]))
        for block in self.blocks:
            x_BTD = block(x_BTD, bias, rotation=relations.rotation)
        return x_BTD

    @property
    def full_blocks(self) -> nn.ModuleList:
        """The blocks that run on each prefix."""
        return self.blocks[len(self.blocks) - self.cfg.recomputed_layers :]

    def embedded(
        self, inputs: Tensor, positions_BT: Tensor | None, mask_BTT: Tensor | None
    ) -> tuple[Tensor, Relations]:
        """Input of the first block, (B, T, D), and how its tokens see each other."""
        x_BTD = self.embed(inputs, positions_BT)
        if positions_BT is None:
            positions_BT = torch.arange(inputs.shape[1], device=inputs.device)[None]
        return x_BTD, relations_of(self.positions, positions_BT, mask_BTT, x_BTD.dtype)

    def embed(self, inputs: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """Input of the first block, (B, T, D)."""
        x_BTD = self.embedding(inputs)
        added = self.positions.embeddings(slice(inputs.shape[1]) if positions_BT is None else positions_BT)
        return x_BTD if added is None else x_BTD + added

    def head(self, x_ND: Tensor) -> Tensor:
        return F.linear(x_ND, self.embedding.weight) if self.read_out is None else self.read_out(x_ND)


def causal_pass(blocks: Sequence[nn.Module], x_BTD: Tensor, relations: Relations = NOTHING) -> Tensor:
    """Hidden states (B, T, D) after causal blocks."""
    bias_BHTT, length = relations.bias_BHTT, x_BTD.shape[1]
    if bias_BHTT is not None:  # attention has a causal mask of its own
        bias_BHTT = masked(bias_BHTT, torch.ones(length, length, dtype=torch.bool, device=x_BTD.device).tril())
    for block in blocks:
        x_BTD = block(x_BTD, bias_BHTT, causal=bias_BHTT is None, rotation=relations.rotation)
    return x_BTD


def prefix_mask(prompt_lengths_B: Tensor, length: int) -> Tensor:
    """Boolean (B, 1, T, T), True where attention is allowed: causal, and everything inside the prompt."""
    positions_T = torch.arange(length, device=prompt_lengths_B.device)
    causal_TT = positions_T[None] <= positions_T[:, None]
    in_prompt_BT = positions_T < prompt_lengths_B[:, None]
    return (causal_TT | (in_prompt_BT[:, None] & in_prompt_BT[:, :, None]))[:, None]


def build_model(cfg: ModelConfig, seed: int = 0, device: str = "cpu") -> Transformer:
    """A freshly initialised model on ``device``; the weights depend on ``cfg`` and ``seed`` alone.

    On the device "meta" it has shapes and no weights. Raises ConfigError for a device that is not there.
    """
    check_device(device)
    if torch.device(device).type == "meta":
        with torch.device("meta"):
            return Transformer(cfg, seed)
    return Transformer(cfg, seed).to(device)


def check_device(device: str) -> None:
    """ConfigError for a device that is none, or that is not there."""
    try:
        kind = torch.device(device).type.upper()
    except RuntimeError as error:
        raise ConfigError(f"device = {device!r}: must be 'cpu', 'cuda', 'cuda:1' … or 'meta'") from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        raise ConfigError(f"device = {device!r}: PyTorch finds no {kind} device here; use device = 'cpu'") from error


def parameter_count(model: nn.Module, embeddings: bool = False) -> int:
    """Number of parameters, without token and position embeddings unless asked for."""
    skipped = () if embeddings else ("embedding.", "positions.")
    return sum(p.numel() for name, p in model.named_parameters() if not name.startswith(skipped))
