"""RASP: programs over integer sequences whose only contact between positions is a selection
(appendix F).

The semantics are those of the paper's programs, a variant of Zhou et al. (2024): ``causal``
defaults to False and ``kqv`` takes it too. All sequences of a program are int64 arrays of one
length n, (n,). A selection is a boolean matrix, (n, n), row = query, column = key: the pattern of a
hard attention head. ``traced`` collects them:

    >>> with traced() as steps:
    ...     kqv(k=[0, 1, 2], q=[2, 2, 0], v=[5, 6, 7], pred=equals, name="fetch")
    array([7, 7, 5])
    >>> steps[0].attention.astype(int)
    array([[0, 0, 1],
           [0, 0, 1],
           [1, 0, 0]])
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from entp_lib.validation import one_of

Predicate = Callable[[int, int], bool | int]


class Step(NamedTuple):
    """One selection of a program. ``result``, (n,), is None where ``select`` was called
    by itself.
    """

    name: str
    attention: ndarray
    result: ndarray | None = None


collecting: list[list[Step]] = []  # steps of every open ``traced``, the innermost last


@contextmanager
def traced() -> Iterator[list[Step]]:
    """Yield a list that gets every selection made inside ``with traced() as steps:``, in the order
    of computation.

    If they are nested, only the innermost list gets it. Steps hold copies, which the program cannot
    change later.
    """
    collecting.append([])
    try:
        yield collecting[-1]
    finally:
        collecting.pop()


def equals(key: int, query: int) -> bool:
    return key == query


def true(key: int, query: int) -> bool:
    return True


def full(x: Sequence[int], constant: int) -> ndarray:
    """Return ``constant`` at every position of ``x``."""
    return np.full(len(x), constant, dtype=np.int64)


def indices(x: Sequence[int]) -> ndarray:
    """Return the positions 0 .. n - 1 of ``x``."""
    return np.arange(len(x), dtype=np.int64)


def tok_map(x: Sequence[int], f: Callable[[int], float]) -> ndarray:
    """Return ``f`` of each element, truncated toward zero to an integer."""
    return np.array([int(f(a)) for a in np.asarray(x).tolist()], dtype=np.int64)


def seq_map(x: Sequence[int], y: Sequence[int], f: Callable[[int, int], float]) -> ndarray:
    """Return ``f`` of the two elements at each position, truncated toward zero to an integer."""
    pairs = zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True)
    return np.array([int(f(a, b)) for a, b in pairs], dtype=np.int64)


def select(
    k: Sequence[int],
    q: Sequence[int],
    pred: Predicate,
    causal: bool = False,
    name: str | None = "select",
) -> ndarray:
    """Return the selection [i, j] = ``pred(k[j], q[i])``, (n, n).

    With ``causal`` no later key is selected. With ``name`` None the selection is not traced.
    """
    # Python integers, one pair at a time: a predicate may use ``and`` and chained comparisons
    rows = [
        [pred(key, query) for key in np.asarray(k).tolist()] for query in np.asarray(q).tolist()
    ]
    attention = np.array(rows, dtype=bool).reshape(len(q), len(k))
    attention = np.tril(attention) if causal else attention
    if name is not None and collecting:
        collecting[-1].append(Step(name, attention.copy()))
    return attention


def sel_width(attention: ndarray) -> ndarray:
    """Count the keys that each query selects, (n,)."""
    return attention.sum(1, dtype=np.int64)


def aggr(
    attention: ndarray, v: Sequence[int], default: int = 0, reduction: str = "mean"
) -> ndarray:
    """Return the mean, max or min of the values each query selects, (n,), or else ``default``.

    A mean is truncated toward zero, not rounded down: -7 and 0 give -3.
    """
    one_of("reduction", reduction, ("mean", "max", "min"))
    v = np.asarray(v, dtype=np.int64)
    if reduction == "min":
        return -aggr(attention, -v, -default, "max")
    if reduction == "max":
        lowest = np.iinfo(np.int64).min
        result = np.where(attention, v, lowest).max(1, initial=lowest)
    else:
        total = np.where(attention, v, 0).sum(1)
        # whole numbers throughout: a quotient of floats would be wrong from 2^53 on
        result = np.sign(total) * (np.abs(total) // np.maximum(sel_width(attention), 1))
    return np.where(attention.any(1), result, default)


def kqv(
    k: Sequence[int],
    q: Sequence[int],
    v: Sequence[int],
    pred: Predicate,
    default: int = 0,
    reduction: str = "mean",
    causal: bool = False,
    name: str = "kqv",
) -> ndarray:
    """Return ``aggr(select(k, q, pred, causal), v, default, reduction)``, (n,).

    This is an attention head, and one step of a trace.
    """
    attention = select(k, q, pred, causal, name=None)
    result = aggr(attention, v, default, reduction)
    if collecting:
        collecting[-1].append(Step(name, attention, result.copy()))
    return result
