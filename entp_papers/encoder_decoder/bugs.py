"""The primer's bugs: a check for each, which the computation as printed fails and the corrected one passes.

A check takes a computation of ``faulty`` and returns whether it passes and what it saw in a few words; one that raises
does not pass.

Letters: B batch, T tokens, H heads, K head width, D width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.experiments.studies import Study, columns, largest
from entp_lib.models import Transformer, build_model, costs
from entp_lib.models.decoding import Cache, cached_logits
from entp_lib.models.transformer import Attention
from entp_papers.encoder_decoder import faulty
from entp_papers.encoder_decoder.faulty import HEADS, MASKING, PAD, WIDTH
from entp_papers.encoder_decoder.losses import IGNORED

Finding = tuple[bool, str]

LENGTH = 6
CHANGED = 1e-6  # an output that moves by more has seen what was changed


@dataclass(frozen=True)
class Bug:
    """A computation as printed and as corrected, and the check for both."""

    name: str
    printed: str
    check: str
    faulty: Callable[..., Any]
    corrected: Callable[..., Any]
    passes: Callable[[Callable[..., Any]], Finding]

    def find(self, computation: Callable[..., Any]) -> Finding:
        """The check's finding; one line of the error where the computation raises."""
        try:
            return self.passes(computation)
        except (RuntimeError, ValueError, IndexError) as error:
            words = str(error).strip().split("\n")[0]
            return False, f"{type(error).__name__}: {words if len(words) <= 70 else words[:69] + '…'}"


# --- Attention -------------------------------------------------------------------------------------------------------


def drawn_attention(seed: int = 0, dtype: torch.dtype = torch.float64) -> Attention:
    """The library's attention with weights of a size at which everything matters."""
    attention = Attention(ModelConfig("decoder", 1, HEADS, WIDTH, 1, LENGTH))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in attention.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * (0.5 if p.dim() > 1 else 0.3))
    return attention.to(dtype).eval()


def states(length: int = LENGTH, seed: int = 1) -> Tensor:
    """Random states (2, T, D)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, WIDTH, generator=generator, dtype=torch.float64)


def influence(compute: Callable[..., Tensor], length: int = LENGTH) -> Tensor:
    """(T, T): how far the output at a row moves when the token of a column changes."""
    attention, x_BTD = drawn_attention(), states(length)
    before, rows = compute(attention, x_BTD), []
    for token in range(length):
        other_BTD = x_BTD.clone()
        other_BTD[:, token] += 1
        rows.append((compute(attention, other_BTD) - before).abs().amax((0, 2)))
    return torch.stack(rows, 1).detach()


@torch.no_grad()
def torch_attention(attention: Attention) -> nn.MultiheadAttention:
    """PyTorch's own layer with the same weights."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=attention.qkv.weight.dtype).eval()
    theirs.in_proj_weight.copy_(attention.qkv.weight)
    theirs.in_proj_bias.copy_(attention.qkv.bias)
    theirs.out_proj.weight.copy_(attention.out.weight)
    theirs.out_proj.bias.copy_(attention.out.bias)
    return theirs


def tokens_mix(compute: Callable[..., Tensor]) -> Finding:
    smallest = float(influence(compute)[~torch.eye(LENGTH, dtype=torch.bool)].min())
    return smallest > CHANGED, f"another token moves an output by {smallest:.1g} or more"


def every_length_runs(compute: Callable[..., Tensor]) -> Finding:
    attention, ran = drawn_attention(), []
    for length in range(1, 13):
        try:
            compute(attention, states(length))
            ran.append(length)
        except RuntimeError:  # shapes that do not fit
            continue
    passed = len(ran) == 12
    return passed, "all of 1 to 12" if passed else f"only {', '.join(map(str, ran))} of 1 to 12"


def past_alone_is_seen(compute: Callable[..., Tensor]) -> Finding:
    moved_TT = influence(compute, HEADS)  # the one length above 1 at which the printed mask fits
    below = torch.ones(HEADS, HEADS).tril(-1) == 1
    past, future = float(moved_TT[below].min()), float(moved_TT[below.T].max())
    seen = f"past tokens move outputs by {past:.1g} or more, later ones by {future:.1g}"
    return past > CHANGED and future == 0, seen


def equals_torch(compute: Callable[..., Tensor]) -> Finding:
    attention, x_BTD = drawn_attention(), states()
    expected = torch_attention(attention)(x_BTD, x_BTD, x_BTD, need_weights=False)[0]
    apart = largest(compute(attention, x_BTD), expected)
    return apart < 1e-6, f"differs from torch.nn.MultiheadAttention by {apart:.1g}"


def half_precision_runs(weigh: Callable[..., Tensor]) -> Finding:
    weights = weigh(torch.zeros(3, 3, dtype=torch.float16), torch.ones(3, 3, dtype=torch.bool).tril())
    hidden = float(weights.triu(1).max())
    return hidden == 0, f"largest weight of a hidden token {hidden:g}"


def nothing_seen_is_refused(weigh: Callable[..., Tensor]) -> Finding:
    try:
        weights = weigh(torch.zeros(2, 2), torch.tensor([[True, True], [False, False]]))
    except ValueError as error:
        return True, f"refused: {error}"
    hidden = float(weights[1].sum())
    return hidden == 0, f"weight on hidden tokens {hidden:g}"


# --- Batches, losses, padding ----------------------------------------------------------------------------------------


def no_special_token_is_drawn(draw: Callable[..., Tensor]) -> Finding:
    tokens_BT = torch.randint(9, (200, 50), generator=torch.Generator().manual_seed(0))
    found = draw(tokens_BT, 1)
    special = int(torch.isin(found, torch.tensor(MASKING.special)).sum())
    return special == 0 and len(found) > 0, f"{special} special tokens among {len(found)} drawn ones"


def padding_changes_nothing(encode: Callable[[Tensor], Tensor]) -> Finding:
    tokens_BT = torch.tensor([[1, 2, 3, 4]])
    longer = F.pad(tokens_BT, (0, 5), value=PAD)
    apart = largest(encode(longer)[:, :4], encode(tokens_BT))
    return apart < 1e-12, f"five filled places move the states by {apart:.1g}"


def nothing_to_learn_is_refused(loss: Callable[..., Tensor]) -> Finding:
    try:
        value = float(loss(torch.zeros(3, 5), torch.full((3,), IGNORED)))
    except ValueError as error:
        return True, f"refused: {str(error).split(',')[0]}"
    return value == value, f"loss {value}"


def order_matters(encode: Callable[[Tensor], Tensor]) -> Finding:
    apart = largest(*(encode(torch.tensor([order]))[:, 2:] for order in ([1, 2, 3, 4], [2, 1, 3, 4])))
    return apart > CHANGED, f"two tokens changed places: the others' states move by {apart:.1g}"


def padding_is_unseen(weigh: Callable[..., Tensor]) -> Finding:
    visible = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    weights_BHTT = weigh(torch.zeros(3, 2, 3, 3), visible)
    onto = float(weights_BHTT.masked_fill(visible[:, None, None], 0).max())
    return onto == 0, f"largest weight of padding {onto:.2g} (3 rows of 3 tokens, where the shapes happen to fit)"


# --- Caches and costs ------------------------------------------------------------------------------------------------


def keys(length: int, seed: int = 0) -> Tensor:
    """Random keys (2, H, T, K)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, HEADS, length, WIDTH // HEADS, generator=generator, dtype=torch.float64)


def prompt_is_kept(make: Callable[..., Any]) -> Finding:
    k = keys(3)
    found = make(torch.float64).write(0, k, k)
    return found.shape == k.shape and torch.equal(found.double(), k), f"{found.shape[2]} of 3 tokens kept"


def precision_is_kept(make: Callable[..., Any]) -> Finding:
    k = keys(1)
    found = make(torch.float64).write(0, k, k)
    return torch.equal(found.double(), k), f"keys of fp64 come back off by {largest(found, k):.1g}"


def layers_are_apart(make: Callable[..., Any]) -> Finding:
    cache = make(torch.float64)
    cache.write(0, keys(1), keys(1))
    found = cache.write(1, keys(1, 5), keys(1, 5))
    return found.shape[2] == 1, f"the second layer reads {found.shape[2]} tokens of 1"


@torch.no_grad()
def cache_equals_no_cache(steps: Callable[..., Tensor]) -> Finding:
    model = build_model(ModelConfig("decoder", 2, 2, WIDTH, 8, 8)).double().eval()
    tokens_BT = torch.tensor([[3, 1, 4, 1, 5]])
    for p in model.parameters():
        p.mul_(8 if p.dim() > 1 else 1)
    apart = largest(steps(model, tokens_BT), model(tokens_BT)[-1:])
    return apart < 1e-10, f"logits differ from a pass without a cache by {apart:.1g}"


def growth_is_counted(predicted: Callable[[str, ModelConfig, int], float]) -> Finding:
    """Growth of work as n doubles, against PyTorch's own count on the models themselves, without weights."""
    n, cfg = 1024, ModelConfig("decoder", 1, 1, 8, 8, 2048)
    model = build_model(cfg, device="meta").eval()
    passed, words = True, []
    for name, kind in (("encoder", "classify"), ("decoder", "generate")):
        said = predicted(kind, cfg, 2 * n) / predicted(kind, cfg, n)
        found = counted_work(model, kind, 2 * n) / counted_work(model, kind, n)
        passed = passed and abs(said / found - 1) < 0.02
        words.append(f"{name} {said:.1f} said, {found:.1f} counted")
    return passed, f"twice the length takes {'; '.join(words)}"


def counted_work(model: Transformer, kind: str, n: int) -> int:
    """Multiply-adds to read n tokens in one full pass, or to write n with a cache, summed at 16 lengths' means."""
    if kind == "classify":
        x_BTD = torch.zeros(1, n, model.cfg.width, device="meta")
        return costs.counted(lambda: model.blocks[0](x_BTD))
    total, step = 0, n // 16
    for length in range(step // 2, n, step):
        cache = Cache(model, 1, length)
        cache.length = length - 1
        token = torch.zeros(1, 1, dtype=torch.long, device="meta")
        total += step * costs.counted(lambda token=token, cache=cache: cached_logits(model, token, cache))
    return total


BUGS = (
    Bug("B1", "scores between the heads of one token", "another token's change reaches an output",
        faulty.across_heads, faulty.across_tokens, tokens_mix),
    Bug("B2", "a mask over tokens on scores over heads", "every length runs",
        faulty.causally(faulty.across_heads), faulty.causally(faulty.across_tokens), every_length_runs),
    Bug("B2", "where the shapes fit, heads are hidden", "earlier tokens are seen, later ones are not",
        faulty.causally(faulty.across_heads), faulty.causally(faulty.across_tokens), past_alone_is_seen),
    Bug("B3", "heads merged without bringing tokens back to the front", "equals torch.nn.MultiheadAttention",
        faulty.merged_as_printed, faulty.across_tokens, equals_torch),
    Bug("B4", "-10⁹ in place of hidden scores", "runs in fp16",
        faulty.filled_with_a_number, faulty.filled_with_infinity, half_precision_runs),
    Bug("B4", "-10⁹ where a row sees nothing", "no weight goes to hidden tokens",
        faulty.filled_with_a_number, faulty.filled_with_infinity, nothing_seen_is_refused),
    Bug("B5", "replacements from the whole vocabulary", "no special token is drawn",
        faulty.drawn_from_all, faulty.drawn_from_ordinary, no_special_token_is_drawn),
    Bug("B5", "no mask of padding is returned", "padding changes no state",
        faulty.encoder(12, 12), faulty.encoder(12, 12, visible=True), padding_changes_nothing),
    Bug("B5", "a batch in which nothing was selected", "a number, or an error in words",
        partial(F.cross_entropy, ignore_index=IGNORED), faulty.loss_of_something, nothing_to_learn_is_refused),
    Bug("B6", "the cache takes one token", "a prompt can be stored",
        faulty.OneTokenCache, faulty.LayeredCache, prompt_is_kept),
    Bug("B6", "buffers of fp32, whatever the model has", "keys come back as they were",
        faulty.OneTokenCache, faulty.LayeredCache, precision_is_kept),
    Bug("B6", "one counter for all that is stored", "two layers are kept apart",
        faulty.OneTokenCache, faulty.LayeredCache, layers_are_apart),
    Bug("B6", "nothing says which place a cached step has", "equals no cache",
        partial(faulty.steps, in_place=False), partial(faulty.steps, in_place=True), cache_equals_no_cache),
    Bug("B7", "layers without positions", "the order of tokens matters",
        faulty.encoder(places=0), faulty.encoder(), order_matters),
    Bug("B7", "an encoder mask of no stated shape", "padding gets no weight",
        faulty.filled_with_a_number, faulty.shaped_padding_mask, padding_is_unseen),
    Bug("B8", "an encoder constant, a decoder linear in time", "the growth that is counted",
        lambda kind, cfg, n: 1.0 if kind == "classify" else float(n), faulty.right_costs, growth_is_counted),
)  # fmt: skip


def bugs_study() -> Study:
    """Every check on the computation as printed and as corrected; a row of the curves each."""
    rows = []
    for bug in BUGS:
        (failed, as_printed), (passed, corrected) = bug.find(bug.faulty), bug.find(bug.corrected)
        seen = {"as_printed": as_printed, "corrected": corrected, "told_apart": passed and not failed}
        rows.append({"bug": bug.name, "printed": bug.printed, "check": bug.check, **seen})
    attentions = {"printed": faulty.across_heads, "corrected": faulty.across_tokens}
    attentions["causal"] = faulty.causally(faulty.across_tokens)
    metrics = {
        "bugs": len(BUGS),
        "told_apart": sum(row["told_apart"] for row in rows),
        "influence": {name: influence(compute).tolist() for name, compute in attentions.items()},
    }
    return metrics, columns(rows)
