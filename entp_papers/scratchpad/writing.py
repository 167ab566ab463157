"""Writing scratchpads with a model, state after state, one by one or many at a time.

Letters: R rows, T tokens, V vocabulary.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entp_lib.models import Transformer
from entp_lib.validation import one_of, require
from entp_papers.scratchpad.format import Scratchpad, Tokens
from entp_papers.scratchpad.reading import READERS, Reader

END, TOO_LONG, TOO_MANY = "end", "a state without its delimiter", "too many states"


@dataclass(frozen=True)
class Written:
    """What a model wrote: states without delimiters, why it stopped, the tokens it read, logits (T, V) if kept."""

    states: tuple[Tokens, ...]
    stopped: str
    forwards: int = 0
    logits_TV: Tensor | None = None


@torch.no_grad()
def write(
    model: Transformer,
    pad: Scratchpad,
    question: Sequence[int],
    way: str,
    most_state_tokens: int,
    most_states: int,
    choose: Callable[[Tensor], int] | None = None,
    given: Sequence[Sequence[int]] = (),
) -> Written:
    """A scratchpad written token by token, greedily unless ``choose`` takes the next token from logits (V,).

    ``way``: one of ``READERS``. Writing stops at the end token, and where a state has ``most_state_tokens`` tokens and
    no delimiter, or ``most_states`` are written without an end. ConfigError as ``Reader``.
    """
    one_of("way", way, READERS)
    check_limits(most_state_tokens, most_states)
    reader: Reader = READERS[way](model, pad, question, given)
    logits: list[Tensor] = []
    while True:
        logits.append(reader.logits())
        token = int(logits[-1].argmax()) if choose is None else choose(logits[-1])
        number, present = len(reader.segments), len(reader.segments[-1])
        stopped = reason(pad, token, number, present, most_state_tokens, most_states)
        if stopped:
            break
        reader.append(token)
    states = [tuple(segment[:-1]) for segment in reader.segments[:-1]] + [tuple(reader.segments[-1])]
    return Written(tuple(states), stopped, reader.forwards, torch.stack(logits))


def check_limits(most_state_tokens: int, most_states: int) -> None:
    """ConfigError for limits below 1."""
    for name, value in (("most_state_tokens", most_state_tokens), ("most_states", most_states)):
        require(value >= 1, f"{name} = {value}: must be at least 1")


def reason(pad: Scratchpad, token: int, number: int, present: int, most_state_tokens: int, most_states: int) -> str:
    """Why writing stops at ``token``, which follows ``present`` tokens of state ``number``; "" where it goes on."""
    if token == pad.end:
        return END
    if token == pad.delimiter:
        return TOO_MANY if number >= most_states else ""
    return TOO_LONG if present >= most_state_tokens else ""


@torch.no_grad()
def write_many(
    model: nn.Module,
    pad: Scratchpad,
    questions: Sequence[Sequence[int]],
    inductive: bool,
    most_state_tokens: int,
    most_states: int,
    given: Sequence[Sequence[Sequence[int]]] | None = None,
) -> list[Written]:
    """Scratchpads for many questions, greedily and without caches, behind the ``given`` states of each.

    With ``inductive`` each state is written from the question and the last state, else from the whole text. Rows are
    filled up behind their last token, which no architecture but a prefix decoder sees. One that would outgrow the
    model's context stops as one whose state has no delimiter.
    """
    check_limits(most_state_tokens, most_states)
    room = model.cfg.max_length
    begun = [()] * len(questions) if given is None else given
    segments = [[*([*state, pad.delimiter] for state in states), []] for states in begun]
    stopped = [""] * len(questions)
    while not all(stopped):
        going = [i for i, why in enumerate(stopped) if not why]
        contexts = []
        for i in going:
            read = segments[i][-2:] if inductive else segments[i]
            contexts.append([*questions[i], pad.start, *itertools.chain(*read)])
        fits = [(i, context) for i, context in zip(going, contexts, strict=True) if len(context) <= room]
        for i in set(going) - {i for i, _ in fits}:
            stopped[i] = TOO_LONG
        if not fits:
            break
        tokens_R = next_tokens(model, [context for _, context in fits], pad.end)
        for (i, _), token in zip(fits, tokens_R.tolist(), strict=True):
            present = segments[i][-1]
            why = reason(pad, token, len(segments[i]), len(present), most_state_tokens, most_states)
            if why:
                stopped[i] = why
                continue
            present.append(token)
            if token == pad.delimiter:
                segments[i].append([])
    return [
        Written((*(tuple(s[:-1]) for s in whole[:-1]), tuple(whole[-1])), why)
        for whole, why in zip(segments, stopped, strict=True)
    ]


def next_tokens(model: nn.Module, contexts: Sequence[Sequence[int]], filler: int) -> Tensor:
    """The likeliest token (R,) after each context."""
    longest = max(map(len, contexts))
    device = next(model.parameters()).device
    inputs_RT = torch.tensor([[*c, *[filler] * (longest - len(c))] for c in contexts], device=device)
    wanted_RT = torch.zeros_like(inputs_RT, dtype=torch.bool)
    ends_R = torch.tensor([len(c) - 1 for c in contexts], device=device)
    wanted_RT[torch.arange(len(contexts), device=device), ends_R] = True
    return model(inputs_RT, wanted_RT).argmax(-1)
