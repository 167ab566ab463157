"""The machine under a causal mask: what full attention is for.

The order of tokens does not matter to full attention, since positions are written in the tokens. A causal mask lets a
token see those before it only. With the scratchpad first, it sees nothing but itself: no command is ever fetched. With
the scratchpad last, it sees all, but no memory token sees it: results are computed and never written.

Letters: B batch, T tokens, D width.
"""

import torch
from torch import Tensor

from entp_lib.validation import one_of
from entp_papers.looped.interpreter import interpret
from entp_papers.looped.program import Program, states
from entp_papers.looped.subleq import SubleqMachine

PLACES = ("first", "last")


def with_scratchpad(x_BTD: Tensor, place: str) -> Tensor:
    """The state with its scratchpad token, the first, moved to ``place``: first or last."""
    one_of("place", place, PLACES)
    return x_BTD if place == "first" else torch.cat([x_BTD[:, 1:], x_BTD[:, :1]], 1)


def scratchpad_first(x_BTD: Tensor, place: str) -> Tensor:
    """The state of ``with_scratchpad`` in the machine's own order again."""
    one_of("place", place, PLACES)
    return x_BTD if place == "first" else torch.cat([x_BTD[:, -1:], x_BTD[:, :-1]], 1)


@torch.inference_mode()
def masked_run(on: SubleqMachine, programs: list[Program], steps: int, pattern: str, place: str) -> dict[str, float]:
    """Passes after which memory, and counter, are right, as shares; and the share of passes that changed any word.

    All programs run for ``steps`` passes. ``fetched`` is the share of first passes in which layer 1 brought the right
    command to the scratchpad, ``computed`` that in which layer 5 had the right difference there.
    """
    programs = [p.padded(on.shape) for p in programs]
    histories = [interpret(p, steps, stay=True) for p in programs]
    memories = torch.tensor([h.memories for h in histories])
    lines = torch.tensor([h.lines for h in histories])
    x = with_scratchpad(states(on, programs), place)
    right_memory = right_line = changed = 0.0
    fetched, computed = first_pass(on, x, programs, memories[:, 1], pattern, place)
    before = on.words(scratchpad_first(x, place))
    for t in range(1, steps + 1):
        x = on(x, pattern)
        state = scratchpad_first(x, place)
        words = on.words(state)
        right_memory += float((words == memories[:, t]).all(1).double().mean()) / steps
        right_line += float((on.counters(state) == lines[:, t]).double().mean()) / steps
        changed += float((words != before).any(1).double().mean()) / steps
        before = words
    return {
        "fetched": fetched,
        "computed": computed,
        "memory": right_memory,
        "counter": right_line,
        "changed": changed,
    }


def first_pass(
    on: SubleqMachine, x_BTD: Tensor, programs: list[Program], after_BC: Tensor, pattern: str, place: str
) -> tuple[float, float]:
    """Shares of programs whose first command reached the scratchpad, and whose first difference was computed there."""
    rows, first = on.rows, 1 + on.shape.cells
    current = scratchpad_first(x_BTD, place)[:, first, rows.slice("command")]
    targets = torch.tensor([p.code[0][1] for p in programs])
    expected = after_BC.gather(1, targets[:, None])[:, 0]
    fetched = computed = 0.0
    for i, layer in enumerate(on.layers):
        x_BTD = layer(x_BTD, pattern)
        scratchpad = scratchpad_first(x_BTD, place)[:, 0]
        if i == 0:
            fetched = float(((scratchpad[:, rows.slice("current")] - current).abs() < 0.1).all(1).double().mean())
        if i == 4:
            word = scratchpad[:, rows.slice("copy_b")]
            value = (((word > 0).long() << torch.arange(on.shape.bits)).sum(1)) - (
                (word[:, -1] > 0).long() << on.shape.bits
            )
            computed = float(((value == expected) & (word.abs() > 0.5).all(1)).double().mean())
    return fetched, computed
