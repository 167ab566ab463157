"""What may be reused when a text grows: between a decoder, which keeps everything, and ENTP, which keeps nothing.

The inductive scratchpad lies between the two: its prefixes are the question and the last state, not the whole text.
Keys and values of every layer are compared before and after an event:

    token    one more token of the present state is read
    state    the present state ends and becomes the last one of the next

Letters: T tokens, K head width, D width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from entp_lib.models import Transformer
from entp_lib.models.relations import Relations, relations_of
from entp_lib.validation import require
from entp_papers.scratchpad.equivalence import PAD, random_example, random_model
from entp_papers.scratchpad.format import Example, Scratchpad, Tokens
from entp_papers.scratchpad.reading import READERS

EXACT = 1e-9  # in double precision
# What writes a scratchpad: the architecture, and whether a state reads the question and the last state alone.
KINDS = {
    "decoder": ("decoder", False),
    "inductive decoder": ("decoder", True),
    "inductive ENTP": ("entp", True),
    "ENTP": ("entp", False),
}


@torch.no_grad()
def keys_and_values(model: Transformer, tokens: Sequence[int], full: bool) -> list[Tensor]:
    """Keys and values of every layer, (T, 2, H, K) each, of one text read at positions 0, 1, 2 …

    ``full``: with full attention, as ENTP reads the prefix that ends there, else causally.
    """
    inputs_BT = torch.tensor([list(tokens)])
    ids_BT = torch.arange(len(tokens))[None]
    relations = relations_of(model.positions, ids_BT, None, model.ln_f.weight.dtype) or Relations()
    if not full:
        relations = relations.allowing(torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril())
    x_BTD, found = model.embed(inputs_BT, None), []
    for block in model.blocks:
        _, k, v = block.attention.project(block.ln_1(x_BTD), relations.rotation)
        found.append(torch.stack([k[0], v[0]]).permute(2, 0, 1, 3))
        x_BTD = block(x_BTD, relations.bias_BHTT, rotation=relations.rotation)
    return found


def contexts(pad: Scratchpad, example: Example, inductive: bool) -> dict[str, Tokens]:
    """The memory, older states, the last and the present state of a text that has just ended its third state."""
    require(len(example.states) >= 4, f"{len(example.states)} states: must be at least 4, an older one and one to come")
    memory, segments = pad.memory(example), pad.segments(example)
    older = () if inductive else segments[0]
    return {"memory": memory, "older": older, "last": segments[1], "present": segments[2]}


def changes(model: Transformer, pad: Scratchpad, example: Example, inductive: bool) -> list[dict[str, Any]]:
    """By event and part of the text, how many of the first layers keep keys and values, and the largest change."""
    full = model.cfg.recomputed_layers > 1
    parts = contexts(pad, example, inductive)
    whole = [*parts["memory"], *parts["older"], *parts["last"], *parts["present"]]
    ends = dict(zip(parts, torch.tensor([len(p) for p in parts.values()]).cumsum(0).tolist(), strict=True))
    starts = {name: ends[name] - len(part) for name, part in parts.items()}
    before = keys_and_values(model, whole[:-1], full)
    after = keys_and_values(model, whole, full)
    rows = []
    for part in parts:
        where = slice(starts[part], min(ends[part], len(whole) - 1))
        if where.stop > where.start:
            rows.append(compare("token", part, [b[where] for b in before], [a[where] for a in after]))
    before = after
    if inductive:
        after = keys_and_values(model, [*parts["memory"], *parts["present"]], full)
        moved = {"memory": 0, "present": len(parts["memory"])}
    else:
        after = keys_and_values(model, [*whole, example.states[3][0]], full)
        moved = starts
    for part, start in moved.items():
        size = len(parts[part])
        if size:
            old, new = slice(starts[part], ends[part]), slice(start, start + size)
            rows.append(compare("state", part, [b[old] for b in before], [a[new] for a in after]))
    return rows


def compare(event: str, part: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> dict[str, Any]:
    """One row of ``changes``."""
    apart = [float((b - a).abs().max()) for b, a in zip(before, after, strict=True)]
    kept = next((layer for layer, change in enumerate(apart) if change > EXACT), len(apart))
    return {"event": event, "part": part, "layers_kept": kept, "layers": len(apart), "largest_change": max(apart)}


def costs(model: Transformer, pad: Scratchpad, example: Example, ways: Sequence[str]) -> list[dict[str, Any]]:
    """By way of reading, the tokens read to write one scratchpad, and how far logits are from the definition.

    The definition is ``trimmed`` for an inductive way and ``whole`` for the others.
    """
    text = sum(pad.segments(example), ())
    found: dict[str, tuple[Tensor, int]] = {}
    for way in {*ways, "trimmed", "whole"}:
        reader, logits = READERS[way](model, pad, example.question), []
        for token in text:
            logits.append(reader.logits())
            reader.append(token)
        found[way] = torch.stack(logits), reader.forwards
    rows = []
    for way in ways:
        inductive = way not in ("whole", "cached")
        exact = found["trimmed" if inductive else "whole"][0]
        error = float((found[way][0] - exact).abs().max())
        rows.append({"way": way, "inductive": inductive, "tokens_read": found[way][1], "largest_error": error})
    return rows


def reuse_study(
    scheme: str, states: int, longest: int, n_layers: int, texts: int
) -> tuple[dict[str, Any], dict[str, list]]:
    """Both tables over random texts and weights: the least that is kept, the largest change, the mean tokens read.

    Curves: a row per kind, event and part. Metrics: by kind and way the tokens read and the largest error.
    """
    kept: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    ways: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(texts):
        example = random_example(torch.Generator().manual_seed(seed), states, longest)
        for kind, (architecture, inductive) in KINDS.items():
            model = random_model(architecture, scheme, seed, max_length=512, n_layers=n_layers)
            for row in changes(model, PAD, example, inductive):
                kept.setdefault((kind, row["event"], row["part"]), []).append(row)
            for row in costs(model, PAD, example, ways_of(architecture, inductive)):
                ways.setdefault((kind, row["way"]), []).append(row)
    table: dict[str, list] = {
        "kind": [kind for kind, _, _ in kept],
        "event": [event for _, event, _ in kept],
        "part": [part for _, _, part in kept],
        "layers_kept": [min(row["layers_kept"] for row in rows) for rows in kept.values()],
        "largest_change": [max(row["largest_change"] for row in rows) for rows in kept.values()],
    }
    read: dict[str, dict[str, Any]] = {}
    for (kind, way), rows in ways.items():
        read[f"{kind}, {way}"] = {
            "tokens_read": sum(row["tokens_read"] for row in rows) / len(rows),
            "largest_error": max(row["largest_error"] for row in rows),
        }
    return {"layers": n_layers, "scheme": scheme, "ways": read}, table


def ways_of(architecture: str, inductive: bool) -> tuple[str, ...]:
    """How a kind of ``KINDS`` can be read; the naive cache among them, to be shown wrong."""
    if not inductive:
        return ("whole", "cached") if architecture == "decoder" else ("whole",)
    return ("trimmed", "masked", "recomputed", "doubled", "naive") if architecture == "decoder" else ("trimmed",)
