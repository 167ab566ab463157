"""The primer's bugs: minimal code with each printed fault, corrected code, and a check for both.

A check takes a computation and returns whether it passes, and a short finding; a computation that
raises does not pass.

Letters: B batch, T tokens, H heads, K head width, D width, V vocabulary.
"""

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab.studies import Study, columns, gaussians, largest, seeded
from entp_lib.config import ModelConfig
from entp_lib.decoding import Cache, cached_logits
from entp_lib.model import Attention, build_model
from entp_papers.encoder_decoder.computing import growth_is_counted, right_costs
from entp_papers.encoder_decoder.parts import (
    IGNORED,
    Masking,
    attention_mask,
    causal_mask,
    counted_loss,
    mask_tokens,
    random_stack,
)

Finding = tuple[bool, str]
LENGTH = 6
WIDTH = 16
HEADS = 4
MASKING = Masking(vocab_size=12, mask_token=11, special=(9, 10, 11))
PAD = 10
CHANGED = 1e-6  # an output that moves by more has seen what was changed


def drawn_attention() -> Attention:
    """Draw the library's attention with weights large enough for every part to matter."""
    attention = Attention(ModelConfig("decoder", 1, HEADS, WIDTH, 1, LENGTH))
    generator = seeded(0)
    with torch.no_grad():
        for p in attention.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * (0.5 if p.dim() > 1 else 0.3))
    return attention.double().eval()


def states(length: int = LENGTH) -> Tensor:
    """Draw states (2, T, D)."""
    return gaussians(1, 2, length, WIDTH)


@torch.no_grad()
def torch_attention(attention: Attention) -> nn.MultiheadAttention:
    """Build PyTorch's own layer with the same weights."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64).eval()
    theirs.in_proj_weight.copy_(attention.qkv.weight)
    theirs.in_proj_bias.copy_(attention.qkv.bias)
    theirs.out_proj.load_state_dict(attention.out.state_dict())
    return theirs


# --- B1 to B3: attention --------------------------------------------------------------------------


def across_heads(attention: Attention, x_BTD: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attend as printed, with heads after tokens, (B, T, H, K).

    Scores (B, T, H, H) are then between the heads of one token.
    """
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in attention.qkv(x_BTD).chunk(3, -1))
    scores_BTHH = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores_BTHH = scores_BTHH.masked_fill(~mask, -1e9)
    return attention.out((scores_BTHH.softmax(-1) @ v).reshape(x_BTD.shape))


def across_tokens(attention: Attention, x_BTD: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attend with heads before tokens, (B, H, T, K), so that scores are (B, H, T, T)."""
    return attention(*attention.project(x_BTD), mask, causal=False)


def causally(compute: Callable[..., Tensor]) -> Callable[[Attention, Tensor], Tensor]:
    """Pass a mask (T, T) on, True where a token may look."""
    return lambda attention, x_BTD: compute(attention, x_BTD, causal_mask(x_BTD.shape[1]))


def merged_as_printed(attention: Attention, x_BTD: Tensor) -> Tensor:
    """Merge heads as printed: (B, H, T, K) is read as if it were (B, T, H K).

    Before the merge the axes are right.
    """
    q, k, v = attention.project(x_BTD)
    return attention.out(F.scaled_dot_product_attention(q, k, v).reshape(x_BTD.shape))


def influence(compute: Callable[..., Tensor], length: int = LENGTH) -> Tensor:
    """Return (T, T), how far the output at a row moves when the token of a column changes."""
    attention = drawn_attention()
    x_BTD = states(length)
    before = compute(attention, x_BTD)
    rows = []
    for token in range(length):
        other_BTD = x_BTD.clone()
        other_BTD[:, token] += 1
        rows.append((compute(attention, other_BTD) - before).abs().amax((0, 2)))
    return torch.stack(rows, 1).detach()


def tokens_mix(compute: Callable[..., Tensor]) -> Finding:
    smallest = float(influence(compute)[~torch.eye(LENGTH, dtype=torch.bool)].min())
    return smallest > CHANGED, f"another token moves an output by {smallest:.1g} or more"


def every_length_runs(compute: Callable[..., Tensor]) -> Finding:
    attention = drawn_attention()
    ran = []
    for length in range(1, 13):
        with contextlib.suppress(RuntimeError):  # shapes that do not fit
            compute(attention, states(length))
            ran.append(length)
    passed = len(ran) == 12
    return passed, "all of 1 to 12" if passed else f"only {', '.join(map(str, ran))} of 1 to 12"


def past_alone_is_seen(compute: Callable[..., Tensor]) -> Finding:
    moved_TT = influence(compute, HEADS)  # the one length above 1 at which the printed mask fits
    later_TT = ~causal_mask(HEADS)
    past = float(moved_TT[later_TT.T].min())
    future = largest(moved_TT[later_TT])
    seen = f"past tokens move outputs by {past:.1g} or more, later ones by {future:.1g}"
    return past > CHANGED and future == 0, seen


def apart_from_torch(compute: Callable[..., Tensor], causal: bool = False) -> float:
    """Return the largest difference from torch.nn.MultiheadAttention with the same weights."""
    attention = drawn_attention()
    x_BTD = states()
    hidden = ~causal_mask(LENGTH) if causal else None
    expected = torch_attention(attention)(
        x_BTD, x_BTD, x_BTD, attn_mask=hidden, need_weights=False
    )[0]
    return largest(compute(attention, x_BTD), expected)


def equals_torch(compute: Callable[..., Tensor]) -> Finding:
    apart = apart_from_torch(compute)
    return apart < 1e-6, f"differs from torch.nn.MultiheadAttention by {apart:.1g}"


# --- B4 and B7: masks, padding, positions ---------------------------------------------------------


def filled_with_a_number(scores: Tensor, mask: Tensor) -> Tensor:
    """Hide scores as printed, by -10⁹; a padding mask (B, T) is applied to scores as it is."""
    return scores.masked_fill(~mask, -1e9).softmax(-1)


def filled_with_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    """Hide scores by minus infinity, and refuse a row that sees nothing."""
    if not mask.any(-1).all():
        raise ValueError("a row sees nothing")
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def shaped_padding_mask(scores_BHTT: Tensor, visible_BT: Tensor) -> Tensor:
    """Hide padding by a mask (B, 1, 1, T), a row for every row of the batch."""
    return filled_with_infinity(
        scores_BHTT, attention_mask(scores_BHTT.shape[-1], False, visible_BT)
    )


def encoder(
    vocab_size: int = 8, places: int = 8, visible: bool = False
) -> Callable[[Tensor], Tensor]:
    """Return an encoder to states (B, T, D).

    As printed, it has no positions (``places`` 0) or no padding mask (not ``visible``).
    """
    stack = random_stack(0, 2, 2, WIDTH, 32, vocab_size, places)
    return torch.no_grad()(
        lambda tokens_BT: stack(tokens_BT, tokens_BT != PAD if visible else None)
    )


def half_precision_runs(weigh: Callable[..., Tensor]) -> Finding:
    weights = weigh(torch.zeros(3, 3, dtype=torch.float16), causal_mask(3))
    hidden = float(weights.triu(1).max())
    return hidden == 0, f"largest weight of a hidden token {hidden:g}"


def nothing_seen_is_refused(weigh: Callable[..., Tensor]) -> Finding:
    try:
        weights = weigh(torch.zeros(2, 2), torch.tensor([[True, True], [False, False]]))
    except ValueError as error:
        return True, f"refused: {error}"
    hidden = float(weights[1].sum())
    return hidden == 0, f"weight on hidden tokens {hidden:g}"


def padding_is_unseen(weigh: Callable[..., Tensor]) -> Finding:
    visible = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    weights_BHTT = weigh(torch.zeros(3, 2, 3, 3), visible)
    onto = largest(weights_BHTT.masked_fill(visible[:, None, None], 0))
    return (
        onto == 0,
        f"largest weight of padding {onto:.2g} "
        "(3 rows of 3 tokens, where the shapes happen to fit)",
    )


def padding_changes_nothing(encode: Callable[[Tensor], Tensor]) -> Finding:
    tokens_BT = torch.tensor([[1, 2, 3, 4]])
    padded_BT = F.pad(tokens_BT, (0, 5), value=PAD)
    apart = largest(encode(padded_BT)[:, :4], encode(tokens_BT))
    return apart < 1e-12, f"five filled places move the states by {apart:.1g}"


def order_matters(encode: Callable[[Tensor], Tensor]) -> Finding:
    in_order = encode(torch.tensor([[1, 2, 3, 4]]))
    swapped = encode(torch.tensor([[2, 1, 3, 4]]))
    apart = largest(in_order[:, 2:], swapped[:, 2:])
    return apart > CHANGED, f"two tokens changed places: the others' states move by {apart:.1g}"


# --- B5: masked batches ---------------------------------------------------------------------------


def no_special_token_is_drawn(from_all: bool) -> Finding:
    """Count special tokens among replacements.

    As printed, replacements come ``from_all`` of the vocabulary; corrected, from ordinary tokens.
    """
    tokens_BT = torch.randint(9, (200, 50), generator=seeded(0))
    generator = seeded(1)
    batch = mask_tokens(tokens_BT, MASKING, generator)
    inputs_BT = batch.inputs_BT
    replaced_BT = batch.selected_BT & (inputs_BT != MASKING.mask_token) & (inputs_BT != tokens_BT)
    any_BT = torch.randint(MASKING.vocab_size, tokens_BT.shape, generator=generator)
    found = (any_BT if from_all else inputs_BT)[replaced_BT]
    special = int(torch.isin(found, torch.tensor(MASKING.special)).sum())
    return special == 0 and len(
        found
    ) > 0, f"{special} special tokens among {len(found)} drawn ones"


def nothing_to_learn_is_refused(loss: Callable[..., Tensor]) -> Finding:
    try:
        value = float(loss(torch.zeros(3, 5), torch.full((3,), IGNORED)))
    except ValueError as error:
        return True, f"refused: {str(error).split(',')[0]}"
    return value == value, f"loss {value}"


# --- B6: caches -----------------------------------------------------------------------------------


def one_token_cache() -> Callable[[int, Tensor], Tensor]:
    """Make the printed cache: one counter, fp32 buffers (without values), a new token at a time."""
    kept = torch.zeros(2, HEADS, 8, WIDTH // HEADS)
    filled = itertools.count()

    def write(layer: int, k_BHTK: Tensor) -> Tensor:
        at = next(filled)
        kept[:, :, at] = k_BHTK.squeeze(2)
        return kept[:, :, : at + 1]

    return write


def layered_cache() -> Callable[[int, Tensor], Tensor]:
    """Make the library's cache: of the model's dtype, per layer, for any number of new tokens.

    Checks read its keys alone, so that the same numbers serve as values.
    """
    cache = Cache(build_model(ModelConfig("decoder", 2, HEADS, WIDTH, 8, 8)).double(), 2)
    return lambda layer, k_BHTK: cache.extend(layer, k_BHTK, k_BHTK)[0]


def keys(length: int) -> Tensor:
    """Draw keys (2, H, T, K)."""
    return gaussians(0, 2, HEADS, length, WIDTH // HEADS)


def prompt_is_kept(cache: Callable[[], Any]) -> Finding:
    k = keys(3)
    found = cache()(0, k)
    return torch.equal(found.double(), k), f"{found.shape[2]} of 3 tokens kept"


def precision_is_kept(cache: Callable[[], Any]) -> Finding:
    k = keys(1)
    found = cache()(0, k)
    return torch.equal(found.double(), k), f"keys of fp64 come back off by {largest(found, k):.1g}"


def layers_are_apart(cache: Callable[[], Any]) -> Finding:
    write = cache()
    write(0, keys(1))
    found = write(1, keys(1))
    return found.shape[2] == 1, f"the second layer reads {found.shape[2]} tokens of 1"


@torch.no_grad()
def cache_equals_no_cache(in_place: bool) -> Finding:
    """Compare a cache with no cache; ``in_place`` gives new tokens their position, else it is 0."""
    model = build_model(ModelConfig("decoder", 2, 2, WIDTH, 8, 8)).double().eval()
    for p in model.parameters():
        p.mul_(8 if p.dim() > 1 else 1)
    tokens_BT = torch.tensor([[3, 1, 4, 1, 5]])
    cache = Cache(model, 1)
    for token_B1 in tokens_BT.split(1, 1):
        logits_BV = cached_logits(
            model, token_B1, cache, positions_BT=None if in_place else torch.zeros_like(token_B1)
        )
    apart = largest(logits_BV, model(tokens_BT)[-1:])
    return apart < 1e-10, f"logits differ from a pass without a cache by {apart:.1g}"


# --- All of them ----------------------------------------------------------------------------------

# The bug, the printed fault, a check in words; then the computation as printed, as corrected, and
# the check of both.
BUGS = (
    (
        "B1",
        "scores between the heads of one token",
        "another token's change reaches an output",
        across_heads,
        across_tokens,
        tokens_mix,
    ),
    (
        "B2",
        "a mask over tokens on scores over heads",
        "every length runs",
        causally(across_heads),
        causally(across_tokens),
        every_length_runs,
    ),
    (
        "B2",
        "where the shapes fit, heads are hidden",
        "earlier tokens are seen, later ones are not",
        causally(across_heads),
        causally(across_tokens),
        past_alone_is_seen,
    ),
    (
        "B3",
        "heads merged without bringing tokens back to the front",
        "equals torch.nn.MultiheadAttention",
        merged_as_printed,
        across_tokens,
        equals_torch,
    ),
    (
        "B4",
        "-10⁹ in place of hidden scores",
        "runs in fp16",
        filled_with_a_number,
        filled_with_infinity,
        half_precision_runs,
    ),
    (
        "B4",
        "-10⁹ where a row sees nothing",
        "no weight goes to hidden tokens",
        filled_with_a_number,
        filled_with_infinity,
        nothing_seen_is_refused,
    ),
    (
        "B5",
        "replacements from the whole vocabulary",
        "no special token is drawn",
        True,
        False,
        no_special_token_is_drawn,
    ),
    (
        "B5",
        "no mask of padding is returned",
        "padding changes no state",
        encoder(12, 12),
        encoder(12, 12, visible=True),
        padding_changes_nothing,
    ),
    (
        "B5",
        "a batch in which nothing was selected",
        "a number, or an error in words",
        partial(F.cross_entropy, ignore_index=IGNORED),
        counted_loss,
        nothing_to_learn_is_refused,
    ),
    (
        "B6",
        "the cache takes one token",
        "a prompt can be stored",
        one_token_cache,
        layered_cache,
        prompt_is_kept,
    ),
    (
        "B6",
        "buffers of fp32, whatever the model has",
        "keys come back as they were",
        one_token_cache,
        layered_cache,
        precision_is_kept,
    ),
    (
        "B6",
        "one counter for all that is stored",
        "two layers are kept apart",
        one_token_cache,
        layered_cache,
        layers_are_apart,
    ),
    (
        "B6",
        "nothing says which place a cached step has",
        "equals no cache",
        False,
        True,
        cache_equals_no_cache,
    ),
    (
        "B7",
        "layers without positions",
        "the order of tokens matters",
        encoder(places=0),
        encoder(),
        order_matters,
    ),
    (
        "B7",
        "an encoder mask of no stated shape",
        "padding gets no weight",
        filled_with_a_number,
        shaped_padding_mask,
        padding_is_unseen,
    ),
    (
        "B8",
        "an encoder constant, a decoder linear in time",
        "the growth that is counted",
        lambda architecture, cfg, n: 1 if architecture == "encoder" else n,
        right_costs,
        growth_is_counted,
    ),
)


def finding(check: Callable[[Any], Finding], computation: Any) -> Finding:
    """Return the check's finding, or one line of the error where the computation raises."""
    try:
        return check(computation)
    except (RuntimeError, ValueError, IndexError) as error:
        words = str(error).strip().split("\n")[0]
        return False, f"{type(error).__name__}: {words if len(words) <= 70 else words[:69] + '…'}"


def bugs_study() -> Study:
    """Run every check on the printed and on the corrected computation; a row per check."""
    rows = []
    for name, printed, words, faulty, right, check in BUGS:
        failed, as_printed = finding(check, faulty)
        passed, corrected = finding(check, right)
        if not passed:
            raise ArithmeticError(f"{name}, corrected: {corrected}")
        rows.append(
            {
                "bug": name,
                "printed": printed,
                "check": words,
                "as_printed": as_printed,
                "corrected": corrected,
                "told_apart": not failed,
            }
        )
    attentions = {
        "printed": across_heads,
        "corrected": across_tokens,
        "causal": causally(across_tokens),
    }
    metrics = {
        "bugs": len(BUGS),
        "told_apart": sum(row["told_apart"] for row in rows),
        "influence": {name: influence(compute).tolist() for name, compute in attentions.items()},
    }
    return metrics, columns(rows)
