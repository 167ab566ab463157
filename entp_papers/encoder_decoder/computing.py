"""Losses, sampling and caches, on models with random weights in double precision.

Letters: B batch, T tokens, V vocabulary.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.models import Transformer, build_model
from entp_lib.models.decoding import Cache, Stepper, beam_search, cached_logits, filtered, generate
from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.libraries import by_hand, printed_loss
from entp_papers.encoder_decoder.losses import causal_loss, entp_loss, masked_loss
from entp_papers.encoder_decoder.masked_language import IGNORED, Masking, mask_tokens

Study = tuple[dict[str, Any], dict[str, list]]


@torch.no_grad()
def model_of(architecture: str, n_layers: int = 2, vocab: int = 7, seed: int = 0, **shape: Any) -> Transformer:
    """A model in double precision whose weights are large enough for attention and order to matter."""
    shape = dict(n_heads=2, width=16, max_length=16) | shape
    model = build_model(ModelConfig(architecture, n_layers, vocab_size=vocab, **shape), seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.mul_(8) if p.dim() > 1 else p.add_(torch.randn(p.shape, generator=generator).to(p), alpha=0.3)
    return model


def tokens_of(model: Transformer, batch: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.cfg.vocab_size, (batch, length), generator=generator)


def last_logits(model: Transformer, tokens_BT: Tensor) -> Tensor:
    """Logits (B, V) after the last token, computed from nothing."""
    return Stepper(model, tokens_BT, tokens_BT.shape[1], use_cache=False).logits()


def table(names: str, rows: Sequence[Sequence[Any]]) -> dict[str, list]:
    """Rows as curves."""
    columns = names.split()
    return {name: [row[i] for row in rows] for i, name in enumerate(columns)}


@torch.no_grad()
def losses_study(seeds: int) -> Study:
    """Three losses beside their definitions, over random weights and texts; rows: name and largest difference."""
    apart: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        apart[name] = max(apart.get(name, 0.0), abs(value))

    twice = []
    for seed in range(seeds):
        decoder, encoder = (model_of(name, seed=seed) for name in ("decoder", "entp"))
        labels_BT = tokens_of(decoder, 3, 8, seed)
        logits_BTV = decoder(labels_BT).view(3, 8, -1)
        some_BT = labels_BT.clone()
        some_BT[:, 3:5] = IGNORED
        for name, labels in (("causal", labels_BT), ("causal, some ignored", some_BT)):
            note(f"{name}: by hand", float(causal_loss(logits_BTV, labels)) - by_hand(logits_BTV, labels))
            note(f"{name}: as printed", float(causal_loss(logits_BTV, labels) - printed_loss(logits_BTV, labels)))
        note("ENTP's of a decoder: causal", float(entp_loss(decoder, labels_BT) - causal_loss(logits_BTV, labels_BT)))
        one = [F.cross_entropy(last_logits(encoder, labels_BT[:, :t]), labels_BT[:, t]) for t in range(1, 8)]
        note("ENTP: prefix by prefix", float(entp_loss(encoder, labels_BT) - torch.stack(one).mean()))
        masking = Masking(encoder.cfg.vocab_size, 6, (6,), 0.5)
        batch = mask_tokens(labels_BT % 6, masking, torch.Generator().manual_seed(seed))
        places = batch.selected_BT.nonzero().tolist()
        singly = [masked_alone(encoder, batch.inputs_BT[b : b + 1], t, int(batch.labels_BT[b, t])) for b, t in places]
        note("masked: token by token", float(masked_loss(encoder, batch)) - sum(singly) / len(singly))
        # shifted twice, as where a dataset has shifted already: another loss
        twice.append(abs(float(causal_loss(logits_BTV[:, :-1], labels_BT[:, 1:]) - causal_loss(logits_BTV, labels_BT))))
    try:
        refused = float(causal_loss(logits_BTV, torch.full_like(labels_BT, IGNORED)))
    except ConfigError as error:
        refused = str(error)
    metrics = {"shifted_twice": min(twice), "all_ignored": refused, "largest": max(apart.values())}
    return metrics, table("loss apart", list(apart.items()))


@torch.no_grad()
def masked_alone(model: Transformer, tokens_1T: Tensor, place: int, label: int) -> float:
    """-log p of one token by full attention, layer by layer."""
    x = model.embed(tokens_1T)
    for block in model.blocks:
        x = block(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
    return float(F.cross_entropy(model.head(model.ln_f(x))[:, place], torch.tensor([label])))


@torch.no_grad()
def sampling_study(draws: int, top_k: int) -> Study:
    """The primer's five ways of choosing a token, each beside its definition, for a decoder and for ENTP."""
    from scipy.stats import chisquare

    rows = []
    for architecture in ("decoder", "entp"):
        model = model_of(architecture, vocab=5)
        prompt = torch.tensor([[3, 1, 4]])
        greedy = generate(model, prompt, 4)
        logits_BV = last_logits(model, prompt)
        plain_BV = logits_BV.softmax(-1)
        steps = prompt
        for _ in range(4):
            steps = torch.cat([steps, last_logits(model, steps).argmax(-1)[:, None]], 1)
        one_hot_BV = F.one_hot(logits_BV.argmax(-1), 5).double()
        beams, scores = beam_search(model, prompt[0], 3, 25)
        exact = brute_force(model, prompt, 3)
        nucleus = filtered(logits_BV, top_p=0.8)[0]
        largest_BV = torch.where(plain_BV >= plain_BV.sort().values[:, -top_k], plain_BV, 0.0)
        kept = plain_BV[0][nucleus > 0]
        drawn = generate(
            model, prompt.expand(draws, -1), 1, temperature=1.5, generator=torch.Generator().manual_seed(0)
        )
        expected = (logits_BV / 1.5).softmax(-1)[0] * draws
        p_value = chisquare(torch.bincount(drawn[:, -1], minlength=5).numpy(), expected.numpy()).pvalue
        checks = {
            "greedy: the largest logit at every step": torch.equal(greedy, steps),
            "beam search: one beam is greedy": torch.equal(beam_search(model, prompt[0], 4, 1)[0], greedy),
            "beam search: 5² beams find the best of 5³ texts": tuple(beams[0, 3:].tolist()) == max(exact, key=exact.get)
            and abs(float(scores[0]) - max(exact.values())) < 1e-9,
            "temperature: 1e-9 is greedy": bool(((filtered(logits_BV, 1e-9) - one_hot_BV).abs() < 1e-9).all()),
            "top-k: k = V changes nothing": bool(((filtered(logits_BV, top_k=5) - plain_BV).abs() < 1e-12).all()),
            f"top-k: the {top_k} largest alone, in their proportions": bool(
                torch.allclose(filtered(logits_BV, top_k=top_k), largest_BV / largest_BV.sum(), atol=1e-12)
            ),
            "top-p: p = 1 changes nothing": bool(((filtered(logits_BV, top_p=1.0) - plain_BV).abs() < 1e-12).all()),
            "top-p: the fewest tokens of mass 0.8": bool(kept.sum() >= 0.8 and kept.sum() - kept.min() < 0.8),
            "draws follow the model (χ²)": bool(p_value > 1e-3),
        }
        rows += [(architecture, check, right) for check, right in checks.items()]
    return {"draws": draws, "p_value": float(p_value)}, table("architecture check right", rows)


def brute_force(model: Transformer, prompt_1T: Tensor, new: int) -> dict[tuple[int, ...], float]:
    """The log-probability of every text of ``new`` tokens."""
    found = {}
    for text in itertools.product(range(model.cfg.vocab_size), repeat=new):
        whole, total = torch.cat([prompt_1T, torch.tensor([text])], 1), 0.0
        for at in range(new):
            logits = last_logits(model, whole[:, : prompt_1T.shape[1] + at])
            total += float(F.log_softmax(logits, -1)[0, text[at]])
        found[text] = total
    return found


@torch.no_grad()
def caches_study(depths: Sequence[int], length: int, seeds: int) -> Study:
    """Logits with keys and values kept, token by token, beside those computed from nothing: the largest difference."""
    rows = []
    for architecture, n_layers in itertools.product(("decoder", "entp"), depths):
        apart = 0.0
        for seed in range(seeds):
            model = model_of(architecture, n_layers, seed=seed, max_length=length)
            model.entp_method = "reference"  # the definition, for one layer too
            tokens_BT, cache = tokens_of(model, 2, length, seed), Cache(model, 2)
            for t in range(length):
                found = cached_logits(model, tokens_BT[:, t : t + 1], cache, causal=architecture == "decoder")
                apart = max(apart, float((found - last_logits(model, tokens_BT[:, : t + 1])).abs().max()))
        rows.append((architecture, n_layers, apart))
    return {"texts": 2 * seeds, "length": length}, table("architecture n_layers apart", rows)
