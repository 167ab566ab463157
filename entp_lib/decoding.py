"""Generation, greedy or sampled (temperature, top-k, top-p), for every architecture.

A decoder keeps keys and values in a preallocated cache: the prompt is processed once, and each
further token costs one position. A prefix decoder does the same, since its prompt is fixed. ENTP
reads the whole prefix again for every token: from the second layer on, appending a token changes
all keys and values. Only the first layer's projections could be kept, 3 D² of the 12 L D²
multiply-adds of a token; that is not worth a cache. ENTP with a single layer equals a decoder and
uses the cache.

Letters: B batch, T tokens, V vocabulary, H heads, K head width, D width.
"""

import contextlib
import numbers
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.arguments import INTEGERS, check_ids, check_tensor, widest
from entp_lib.attention_bias import combine_masks
from entp_lib.model import Block, Transformer, calls
from entp_lib.validation import positive, require


@torch.no_grad()
def generate(
    model: Transformer,
    prompt_BT: Tensor,
    new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Tensor:
    """Return prompts (B, T) of ids with ``new_tokens`` more tokens, (B, T + new_tokens).

    Each new token is the most likely one, or with a ``temperature`` drawn by ``generator`` from the
    ``top_k`` most likely and the smallest set with probability ``top_p``. ``use_cache``: keep keys
    and values where that is exact. Raises ValueError for a model of continuous inputs, an empty
    prompt, ids outside the vocabulary, sampling parameters out of range and lengths beyond the
    model's.
    """
    read = check_prompt(model, prompt_BT, new_tokens)
    check_sampling(temperature, top_k, top_p)
    with eval_mode(model):
        decoder = IncrementalDecoder(model, prompt_BT, read, use_cache)
        for _ in range(new_tokens):
            logits_BV = decoder.logits()
            if temperature == 0:
                decoder.append(logits_BV.argmax(-1))
            else:
                probabilities_BV = sampling_probabilities(
                    logits_BV, temperature, top_k, top_p
                )
                decoder.append(
                    probabilities_BV.multinomial(1, generator=generator)[:, 0]
                )
    return decoder.tokens_BT


class IncrementalDecoder:
    """Next-token logits of growing sequences: from a cache where that is exact, else recomputed."""

    def __init__(
        self, model: Transformer, prompt_BT: Tensor, max_length: int, use_cache: bool
    ):
        self.model = model
        self.tokens_BT = prompt_BT
        self.prompt_length = prompt_BT.shape[1]
        is_exact = (
            use_cache
            and model.cfg.recomputed_layers < 2
            and calls(model, Transformer)
            and all(calls(block, Block) for block in model.layers)
        )
        self.cache = Cache(model, len(prompt_BT), max_length) if is_exact else None

    def logits(self) -> Tensor:
        """Return the logits (B, V) after the current last token."""
        if self.cache is not None:
            causal = self.cache.length > 0 or not self.model.cfg.open_prompt
            new_BT = self.tokens_BT[:, self.cache.length :]
            return cached_logits(self.model, new_BT, self.cache, causal)
        scored_BT = torch.zeros_like(self.tokens_BT, dtype=torch.bool)
        scored_BT[:, -1] = True
        prompts_B = torch.full_like(self.tokens_BT[:, 0], self.prompt_length)
        return self.model(self.tokens_BT, scored_BT, prompts_B)

    def append(self, tokens_B: Tensor, rows: Tensor | None = None) -> None:
        """Append one token to each sequence; ``rows`` first selects, and may repeat, sequences."""
        if rows is not None:
            self.tokens_BT = self.tokens_BT[rows]
            if self.cache is not None:
                self.cache.kv = self.cache.kv[:, :, rows]
                self.cache.positions_BT = self.cache.positions_BT[rows]
        self.tokens_BT = torch.cat([self.tokens_BT, tokens_B[:, None]], 1)


class Cache:
    """Keys and values (B, H, max_length, K) of every layer; the first ``length`` are filled."""

    def __init__(self, model: Transformer, batch: int, max_length: int | None = None):
        cfg = model.cfg
        self.max_length = cfg.max_length if max_length is None else max_length
        require(
            1 <= self.max_length <= cfg.max_length,
            f"a cache of {self.max_length} positions: must be in 1..{cfg.max_length}, the model's "
            "own",
        )
        head_width = cfg.width // cfg.n_heads
        shape = (cfg.n_layers, 2, batch, cfg.n_heads, self.max_length, head_width)
        self.kv = model.ln_f.weight.new_zeros(shape)
        self.positions_BT = self.kv.new_zeros(batch, self.max_length, dtype=torch.long)
        self.length = 0

    def extend(
        self, layer: int, k_BHTK: Tensor, v_BHTK: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store new positions of ``layer`` and return all keys and values up to them."""
        stop = self.length + k_BHTK.shape[2]
        keys, values = self.kv[layer]
        keys[:, :, self.length : stop] = k_BHTK
        values[:, :, self.length : stop] = v_BHTK
        return keys[:, :, :stop], values[:, :, :stop]


@torch.no_grad()
def cached_logits(
    model: Transformer,
    tokens_BT: Tensor,
    cache: Cache,
    causal: bool = True,
    positions_BT: Tensor | None = None,
) -> Tensor:
    """Return the logits (B, V) after the last of the new tokens (B, T), which follow those cached.

    ``causal=False`` lets the new tokens all see each other, as in the prompt of a prefix decoder.
    Used token by token on an encoder it is the naive cache, which is wrong from two layers on.
    ``positions_BT``: position ids of the new tokens; by default they continue those of the cache,
    counted from 0. Raises ConfigError if the cache would overflow or has another number of rows.
    """
    start = cache.length
    stop = start + tokens_BT.shape[1]
    require(start < stop, f"tokens of shape {tuple(tokens_BT.shape)}: no new token")
    require(
        stop <= cache.max_length,
        f"{stop} tokens: beyond the cache's {cache.max_length} positions",
    )
    require(
        len(tokens_BT) == len(cache.positions_BT),
        f"{len(tokens_BT)} rows of tokens: the cache has {len(cache.positions_BT)}",
    )
    device = tokens_BT.device
    if positions_BT is None:
        positions_BT = torch.arange(start, stop, device=device)[None]
    x_BTD = model.embed(tokens_BT, positions_BT)
    cache.positions_BT[:, start:stop] = positions_BT
    rotation = model.positions.rotation(positions_BT)
    mask = model.positions.bias(positions_BT, cache.positions_BT[:, :stop])
    if causal and stop - start > 1:
        places = torch.arange(stop, device=device)
        mask = combine_masks(mask, places[None] <= places[start:, None])
    for layer, block in enumerate(model.layers):
        q, k, v = block.attention.project(block.ln_1(x_BTD), rotation)
        keys, values = cache.extend(layer, k, v)
        x_BTD = block.residual(x_BTD, block.attention(q, keys, values, mask, False))
    cache.length = stop
    return model.head(model.ln_f(x_BTD[:, -1]))


def sampling_probabilities(
    logits_BV: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> Tensor:
    """Return the sampling probabilities (B, V) for a temperature, top-k and top-p.

    ``top_p`` keeps the smallest set of tokens with at least this probability mass. Of equal logits
    at a boundary, lower token ids are kept first. Temperature 0 puts all mass on the largest logit.
    """
    check_sampling(temperature, top_k, top_p)
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    if temperature == 0:
        return F.one_hot(order_BV[:, 0], logits_BV.shape[-1]).to(logits_BV.dtype)
    sorted_BV = sorted_BV.to(widest(logits_BV.device))
    sorted_BV = (sorted_BV - sorted_BV[:, :1]) / temperature
    if top_k is not None:
        sorted_BV[:, top_k:] = -torch.inf
    probabilities_BV = F.softmax(sorted_BV, -1)
    if top_p < 1:
        before_BV = probabilities_BV.cumsum(-1) - probabilities_BV
        probabilities_BV = probabilities_BV.masked_fill(before_BV >= top_p, 0)
        probabilities_BV = probabilities_BV / probabilities_BV.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities_BV).scatter_(-1, order_BV, probabilities_BV)


def check_sampling(temperature: float, top_k: int | None, top_p: float) -> None:
    """Raise ConfigError, naming the value, for sampling parameters out of range."""
    require(
        isinstance(temperature, numbers.Real) and 0 <= temperature < torch.inf,
        f"temperature = {temperature!r}: must be 0 (greedy) or more, and finite",
    )
    if top_k is not None:
        positive("top_k", top_k)
    require(
        isinstance(top_p, numbers.Real) and 0 < top_p <= 1,
        f"top_p = {top_p!r}: must be above 0 and at most 1",
    )


def check_prompt(model: Transformer, prompt_BT: Tensor, new_tokens: int) -> int:
    """Return how many tokens are read; ValueError for a prompt that does not fit the model."""
    require(
        model.cfg.input_dim is None,
        "generation needs a model of tokens; this one has continuous inputs",
    )
    check_tensor("prompt", prompt_BT, INTEGERS, (None, None), "token ids, torch.int64,")
    shape = tuple(prompt_BT.shape)
    require(0 not in shape, f"prompt of shape {shape}: must have at least one token")
    positive("new_tokens", new_tokens)
    check_ids("token id", prompt_BT, model.cfg.vocab_size)
    read = prompt_BT.shape[1] + new_tokens - 1  # the last token is never read
    require(
        read <= model.cfg.max_length,
        f"new_tokens = {new_tokens} after {prompt_BT.shape[1]}: reading {read} tokens is beyond "
        f"the model's max_length of {model.cfg.max_length}",
    )
    return read


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode within the block."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
