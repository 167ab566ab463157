"""Studies of untrained models in double precision (appendices C.2 and C.3).

- Training: chunks and duplicated states have the same loss; without any one ingredient they do not.
- Writing: every exact way of reading gives the same tokens and logits.
- Reuse: how many keys and values can be kept when a text grows; a decoder keeps all, ENTP none.
- Relative positions are no substitute for the inductive mask: indices and receptive fields.

Letters: T tokens (of a state in appendix C.3), N tokens of a text, L layers, H heads, K head width,
V vocabulary.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from entp_lab.configs import Json
from entp_lab.studies import Study, columns, largest, scale_up, seeded
from entp_lib.config import ModelConfig
from entp_lib.decoding import Cache, cached_logits
from entp_lib.model import Transformer, build_model
from entp_papers.scratchpad.format import (
    DELIMITER,
    END,
    INGREDIENTS,
    START,
    Example,
    Tokens,
    batch_of,
    chunks,
    duplicate_states,
    group_mask,
    memory_of,
    ordinary,
    segments_of,
    text_of,
)
from entp_papers.scratchpad.generation import EXACT_WAYS, READERS, Written, compare_written, write

VOCABULARY = 9
EXACT = 1e-9  # in double precision


def random_example(generator: torch.Generator, states: int, longest: int = 4) -> Example:
    """Draw a question and states of 1 to ``longest`` random tokens that are not delimiters."""

    def some() -> tuple[int, ...]:
        length = int(torch.randint(1, longest + 1, (), generator=generator))
        return tuple(torch.randint(3, VOCABULARY, (length,), generator=generator).tolist())

    return Example(some(), tuple(some() for _ in range(states)))


def random_model(
    architecture: str,
    positions: str,
    seed: int,
    max_length: int = 128,
    n_layers: int = 2,
    vocabulary: int = VOCABULARY,
) -> Transformer:
    """Build a small model in double precision whose weights make attention and order matter."""
    config = ModelConfig(architecture, n_layers, 2, 16, vocabulary, max_length, positions=positions)
    return scale_up(build_model(config, seed), seed)


# Two ways of training


def differences(
    model: nn.Module, examples: Sequence[Example], without: Sequence[str] = (), extra: int = 0
) -> dict[str, float]:
    """Compare chunks with duplicated states: losses, in nats, and the worst gradient entry.

    Losses are summed over the counted tokens. ``extra`` columns of filler are added to the rows of
    both.
    """
    in_chunks = [row for example in examples for row in chunks(example)]
    duplicated = [duplicate_states(example, without) for example in examples]
    losses = []
    gradients = []
    for rows in (in_chunks, duplicated):
        batch = batch_of(rows, extra)
        logits_NV = model(batch.inputs_BT, batch.scored_BT, **batch.model_arguments())
        loss = nn.functional.cross_entropy(logits_NV, batch.targets_N, reduction="sum")
        losses.append(loss)
        gradients.append(
            torch.autograd.grad(loss, tuple(model.parameters()), materialize_grads=True)
        )
    return {"loss": largest(*losses), "gradient": max(map(largest, *gradients))}


def equivalence_study(
    schemes: Sequence[str],
    architectures: Sequence[str],
    most_states: int,
    examples: int,
    batches: int,
) -> Study:
    """Measure differences over random batches, with all ingredients and without each.

    A row per architecture, scheme and ingredient left out ("" for none). Batches have examples of 2
    to ``most_states`` states, because a single state is never duplicated, and filler.
    """
    rows = []
    for architecture, scheme, missing in itertools.product(
        architectures, schemes, ("", *INGREDIENTS)
    ):
        found = []
        for seed in range(batches):
            generator = seeded(seed)
            counts = torch.randint(2, most_states + 1, (examples,), generator=generator).tolist()
            texts = [random_example(generator, count) for count in counts]
            model = random_model(architecture, scheme, seed)
            found.append(differences(model, texts, (missing,) if missing else (), extra=seed % 3))
        pick = min if missing else max
        apart = {name: pick(f[name] for f in found) for name in ("loss", "gradient")}
        rows.append({"architecture": architecture, "scheme": scheme, "without": missing, **apart})
    equal, broken = of_decoders(rows)
    metrics = {
        "largest_loss": largest(equal["loss"]),
        "largest_gradient": largest(equal["gradient"]),
        "smallest_control": float(broken["loss"].min()),
        "batches": batches,
    }
    return metrics, columns(rows)


def of_decoders(found: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a decoder's differences with all ingredients, and without one of them.

    ``found``: the rows of ``equivalence_study``, or its curves.
    """
    rows = pd.DataFrame(found).query("architecture == 'decoder'")
    whole = rows["without"] == ""
    nothing_to_index = (rows["scheme"] == "none") & (rows["without"] == "positions")
    return rows[whole], rows[~whole & ~nothing_to_index]


def mixed_batch_study(schemes: Sequence[str], examples: int, batches: int) -> Study:
    """Compare logits of ordinary texts alone with those in a batch beside duplicated states."""
    rows = []
    for scheme in schemes:
        worst = 0.0
        for seed in range(batches):
            generator = seeded(seed)
            texts = [random_example(generator, 3) for _ in range(examples)]
            plain = [ordinary(text) for text in texts]
            mixed = [*plain, *(duplicate_states(text) for text in texts)]
            model = random_model("decoder", scheme, seed)
            alone_NV, together_NV = (
                model(batch.inputs_BT, batch.scored_BT, **batch.model_arguments())
                for batch in (batch_of(plain), batch_of(mixed))
            )
            worst = max(worst, largest(alone_NV, together_NV[: len(alone_NV)]))
        rows.append({"scheme": scheme, "largest_difference": worst})
    return {"largest_difference": max(r["largest_difference"] for r in rows)}, columns(rows)


# Ways of writing

# added to logits, so that texts have several states and no start
SHIFTS = {DELIMITER: 1.0, START: -9.0, END: -2.0}


def drawn(
    model: Transformer, question: Tokens, way: str, longest: int, states: int, seed: int
) -> Written:
    """Draw a scratchpad from a model; a seed gives the same random numbers in every way of reading.

    Untrained models repeat one token when they write greedily, so that nothing could differ. By the
    Gumbel trick, the largest of the randomly shifted logits is a draw from the softmax.
    """
    generator = seeded(seed)
    noise_TV = (
        -torch.empty((longest + 1) * states, VOCABULARY)
        .double()
        .exponential_(generator=generator)
        .log()
    )
    for token, shift in SHIFTS.items():
        noise_TV[:, token] += shift
    rows = iter(noise_TV)
    return write(
        model,
        question,
        way,
        (longest, states),
        lambda logits_V: (logits_V + next(rows)).argmax(),
    )


def writing_study(
    schemes: Sequence[str], prompts: int, longest: int, states: int, n_layers: int
) -> Study:
    """Write scratchpads with untrained models for ``prompts`` questions per positional scheme.

    A row per scheme and way, the naive cache last: how many texts differ from the definition, and
    the largest difference of their logits. Every question has its own random weights.
    """
    texts = []
    written = []
    for scheme, seed in itertools.product(schemes, range(prompts)):
        question = random_example(seeded(seed), 1, longest).question
        model = random_model("decoder", scheme, seed, n_layers=n_layers)
        definition = drawn(model, question, EXACT_WAYS[0], longest, states, seed)
        written.append(len(definition.states))
        for way in (*EXACT_WAYS[1:], "naive"):
            differs, apart = compare_written(
                definition, drawn(model, question, way, longest, states, seed)
            )
            texts.append(
                {
                    "scheme": scheme,
                    "way": way,
                    "differing_texts": differs,
                    "largest_difference": apart,
                }
            )
    ways = pd.DataFrame(texts).groupby(["scheme", "way"], sort=False)
    rows = ways.agg({"differing_texts": "sum", "largest_difference": "max"}).reset_index()
    later = sum(count > 2 for count in written)  # the naive cache is exact before the third state
    metrics = {"texts": len(written), "texts_beyond_two_states": later, "most_states": max(written)}
    return metrics, rows.to_dict("list")


# Reuse

# By kind of writer: the architecture, whether a state reads only the question and the last state,
# and the ways of reading it, the definition first. The naive cache is there to be shown wrong.
KINDS = {
    "decoder": ("decoder", False, ("whole", "cached")),
    "inductive decoder": ("decoder", True, (*EXACT_WAYS, "naive")),
    "inductive ENTP": ("entp", True, ("trimmed",)),
    "ENTP": ("entp", False, ("whole",)),
}


@torch.no_grad()
def keys_and_values(model: Transformer, tokens: Sequence[int], full: bool) -> Tensor:
    """Compute keys and values of every layer, (L, 2, 1, H, T, K).

    With ``full`` the attention is full, as ENTP reads these tokens as a prefix; else it is causal.
    """
    cache = Cache(model, 1, len(tokens))
    cached_logits(model, torch.tensor([tokens]), cache, causal=not full)
    return cache.kv


def changes(model: Transformer, example: Example, inductive: bool) -> list[Json]:
    """Count the first layers whose keys and values do not change, by event and part of the text.

    The text has just ended its third state. Events: one more ``token`` of the present state is
    read, or the present ``state`` ends and becomes the last state of the next one.
    """
    full = model.cfg.recomputed_layers > 1
    segments = segments_of(example)
    parts = {
        "memory": memory_of(example.question),
        "older": () if inductive else segments[0],
        "last": segments[1],
        "present": segments[2],
    }
    whole = sum(parts.values(), ())
    lengths = map(len, parts.values())
    starts = dict(zip(parts, itertools.accumulate(lengths, initial=0), strict=False))
    before, after = (keys_and_values(model, text, full) for text in (whole[:-1], whole))
    if inductive:
        moved = {"memory": 0, "present": len(parts["memory"])}
        later = keys_and_values(model, parts["memory"] + parts["present"], full)
    else:
        moved = starts
        later = keys_and_values(model, (*whole, example.states[3][0]), full)
    rows = []
    for event, places, earlier, now in (
        ("token", starts, before, after),
        ("state", moved, after, later),
    ):
        for part, new in places.items():
            old = starts[part]
            size = min(len(parts[part]), earlier.shape[-2] - old)
            if size > 0:
                moved_by = earlier[..., old : old + size, :] - now[..., new : new + size, :]
                change_L = moved_by.abs().flatten(1).amax(1)
                rows.append(
                    {
                        "event": event,
                        "part": part,
                        "layers_kept": int((change_L <= EXACT).cumprod(0).sum()),
                        "largest_change": float(change_L.max()),
                    }
                )
    return rows


def costs(kind: str, model: Transformer, example: Example) -> list[Json]:
    """Count the tokens that a kind's ways read to write one scratchpad; measure their errors.

    The definition is the first of the ways.
    """
    rows = []
    ways = KINDS[kind][2]
    for way in ways:
        reader = READERS[way](model, example.question)
        logits = []
        for token in sum(segments_of(example), ()):
            logits.append(reader.logits())
            reader.append(token)
        found_TV = torch.stack(logits)
        if way == ways[0]:
            definition_TV = found_TV
        rows.append(
            {
                "way": f"{kind}, {way}",
                "tokens_read": reader.forwards,
                "largest_error": largest(found_TV, definition_TV),
            }
        )
    return rows


def reuse_study(scheme: str, states: int, longest: int, n_layers: int, texts: int) -> Study:
    """Measure what may be reused, and tokens read, over random texts and weights.

    Curves: a row per kind, event and part. Metrics: by kind and way the tokens read and the largest
    error.
    """
    kept = []
    ways = []
    for seed in range(texts):
        example = random_example(seeded(seed), states, longest)
        for kind, (architecture, inductive, _) in KINDS.items():
            model = random_model(architecture, scheme, seed, max_length=512, n_layers=n_layers)
            kept += [{"kind": kind, **row} for row in changes(model, example, inductive)]
            ways += costs(kind, model, example)
    parts = pd.DataFrame(kept).groupby(["kind", "event", "part"], sort=False)
    read = pd.DataFrame(ways).groupby("way").agg({"tokens_read": "mean", "largest_error": "max"})
    rows = parts.agg({"layers_kept": "min", "largest_change": "max"}).reset_index()
    return {"layers": n_layers, "scheme": scheme, "ways": read.to_dict("index")}, rows.to_dict(
        "list"
    )


# Relative positions
# A question is followed by states of T tokens each, # included. Tokens and states count from 1 as
# in the paper.


def receptive_field(mask_NN: np.ndarray, layers: int) -> np.ndarray:
    """Compute which tokens (N, N) reach which through ``layers`` layers of causal attention."""
    return np.linalg.matrix_power(np.tril(mask_NN).astype(np.int64), layers) > 0


def relative_study(most_tokens: int, states: int, layers: int) -> Study:
    """Measure the three obstacles for states of 2 to ``most_tokens`` tokens.

    A row per T: the distance to the question at the last state; how far a window of T reaches
    through the layers; how many tokens of the state before last the first token of a state sees;
    and the inductive text's distance and leaked tokens.
    """
    rows = []
    grows = True
    for tokens in range(2, most_tokens + 1):
        # a token sees as many tokens back as a state has
        window_NN = ~np.tri(tokens * (states + layers), k=-tokens - 1, dtype=bool)
        last = receptive_field(window_NN, layers)[-1]
        three_states = Example((3,), ((3,) * (tokens - 1),) * 3)
        groups = duplicate_states(three_states).groups
        reached = receptive_field(group_mask(torch.tensor([groups]))[0].numpy(), layers)
        newest_N = np.equal(groups, 3)
        older_N = np.isin(groups, (1, 2))
        # distances at which tokens of the second state must see the first, and their own
        near = range(2 * tokens)
        first = (states - 1) * tokens
        older = range((states - 3) * tokens, (states - 2) * tokens)
        # from the first token of each state back to the last of the question, START between them
        text = text_of(Example((3,), ((4,) * (tokens - 1),) * states))
        distances = [place for place in range(2, len(text)) if text[place - 1] != 4]
        grows = grows and len(distances) == states and distances == sorted(set(distances))
        rows.append(
            {
                "tokens": tokens,
                "question_distance": distances[-1],
                "inductive_distance": min(states - 1, 1) * tokens + 2,  # positions are re-indexed
                "reach": len(last) - 1 - int(last.argmax()),
                "leaked": sum(first - key in near for key in older),
                "inductive_leaked": int(reached[np.ix_(newest_N, older_N)].sum()),
            }
        )
    metrics = {
        "grows": grows,
        "reach_is_window_times_layers": all(row["reach"] == row["tokens"] * layers for row in rows),
        "leaks_all_but_one": all(row["leaked"] == row["tokens"] - 1 for row in rows),
        "inductive_leaks": sum(row["inductive_leaked"] for row in rows),
        "layers": layers,
    }
    return metrics, columns(rows)
