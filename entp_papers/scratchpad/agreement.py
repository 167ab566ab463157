"""Two ways of writing, one scratchpad: the same tokens and logits in every exact way (appendix C.2).

Letters: T tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch

from entp_lib.models import Transformer
from entp_papers.scratchpad.equivalence import PAD, VOCABULARY, random_example, random_model
from entp_papers.scratchpad.format import Tokens
from entp_papers.scratchpad.writing import Written, write

EXACT_WAYS = ("trimmed", "masked", "recomputed", "doubled")
SHIFTS = {PAD.delimiter: 1.0, PAD.start: -9.0, PAD.end: -2.0}  # added to logits: texts of several states, no start


def apart(definition: Written, other: Written) -> tuple[bool, float]:
    """Whether two scratchpads differ in a token or in why they stopped, and the largest difference of logits.

    Logits are compared up to the first token that differs; behind it they belong to different texts.
    """
    texts = [sum(((*state, PAD.delimiter) for state in found.states), ()) for found in (definition, other)]
    common = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    rows = min(common + 1, len(definition.logits_TV), len(other.logits_TV))
    difference = float((definition.logits_TV[:rows] - other.logits_TV[:rows]).abs().max())
    return (definition.states, definition.stopped) != (other.states, other.stopped), difference


def drawn(model: Transformer, question: Tokens, way: str, longest: int, states: int, seed: int) -> Written:
    """A scratchpad drawn from a model; the same seed takes the same random numbers at the same token in every way.

    Untrained models repeat one token when they write greedily, so that nothing could differ. By the Gumbel trick the
    likeliest token behind random shifts of the logits is one drawn from the softmax.
    """
    generator = torch.Generator().manual_seed(seed)
    noise_TV = -torch.empty((longest + 1) * states, VOCABULARY).double().exponential_(generator=generator).log()
    for token, shift in SHIFTS.items():
        noise_TV[:, token] += shift
    rows = iter(noise_TV)
    return write(model, PAD, question, way, longest, states, lambda logits_V: int((logits_V + next(rows)).argmax()))


def writing_study(
    schemes: Sequence[str], prompts: int, longest: int, states: int, n_layers: int
) -> tuple[dict[str, Any], dict[str, list]]:
    """Scratchpads of untrained models in double precision behind ``prompts`` questions for each positional scheme.

    A row per scheme and way, the naive cache last: how many texts differ from the definition, and the largest
    difference of their logits. Every question has random weights of its own.
    """
    table: dict[str, list] = {name: [] for name in ("scheme", "way", "differing_texts", "largest_difference")}
    written: list[int] = []
    for scheme in schemes:
        found: dict[str, list[tuple[bool, float]]] = {way: [] for way in (*EXACT_WAYS[1:], "naive")}
        for seed in range(prompts):
            question = random_example(torch.Generator().manual_seed(seed), 1, longest).question
            model = random_model("decoder", scheme, seed, n_layers=n_layers)
            definition = drawn(model, question, EXACT_WAYS[0], longest, states, seed)
            written.append(len(definition.states))
            for way, pairs in found.items():
                pairs.append(apart(definition, drawn(model, question, way, longest, states, seed)))
        for way, pairs in found.items():
            values = (scheme, way, sum(differs for differs, _ in pairs), max(gap for _, gap in pairs))
            for name, value in zip(table, values, strict=True):
                table[name].append(value)
    later = sum(count > 2 for count in written)  # the naive cache is exact before the third state
    return {"texts": len(written), "texts_beyond_two_states": later, "most_states": max(written)}, table
