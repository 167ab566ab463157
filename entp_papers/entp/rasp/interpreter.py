"""RASP: programs over integer sequences whose only contact between positions is a selection (appendix F).

The semantics are those of the paper's programs, a variant of Zhou et al. (2024): ``causal`` defaults to False and
``kqv`` takes it too. All sequences of a program are int64 arrays of one length n, (n,). A selection is a boolean
matrix, (n, n), row = query, column = key: the pattern of a hard attention head. ``Trace`` collects them:

    >>> with Trace() as trace:
    ...     kqv(k=[0, 1, 2], q=[2, 2, 0], v=[5, 6, 7], pred=equals, name="fetch")
    array([7, 7, 5])
    >>> trace.steps[0].attention.astype(int)
    array([[0, 0, 1],
           [0, 0, 1],
           [1, 0, 0]])

A function raises ValueError where a sequence is not integer and one-dimensional, or lengths differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

Predicate = Callable[[int, int], bool | int]


@dataclass(frozen=True)
class Step:
    """One selection of a program. ``values`` and ``result``, (n,), are None where ``select`` was called by itself."""

    name: str
    attention: ndarray
    values: ndarray | None = None
    result: ndarray | None = None


class Trace:
    """Collects in ``steps`` every selection made inside ``with Trace() as trace:``, in the order of computation.

    Of nested traces the innermost records. Steps hold copies: what the program does later does not change them.
    """

    def __init__(self):
        self.steps: list[Step] = []

    def __enter__(self) -> "Trace":
        _active.append(self)
        return self

    def __exit__(self, *exception) -> None:
        _active.pop()


_active: list[Trace] = []


def _sequences(**named: Sequence[int] | ndarray) -> list[ndarray]:
    """The arguments as int64 arrays of one length. Booleans, as masks are, count as 0 and 1."""
    arrays = [np.asarray(x) for x in named.values()]
    for name, x in zip(named, arrays, strict=True):
        if x.ndim != 1 or (x.size and not np.can_cast(x.dtype, np.int64)):
            raise ValueError(f"{name} = {x!r}: must be a one-dimensional sequence of integers")
    if len({len(x) for x in arrays}) > 1:
        raise ValueError(f"lengths {dict(zip(named, map(len, arrays), strict=True))}: must be equal")
    return [x.astype(np.int64) for x in arrays]


def equals(key: int, query: int) -> bool:
    return key == query


def true(key: int, query: int) -> bool:
    return True


def full(x: Sequence[int], constant: int) -> ndarray:
    """``constant`` at every position of ``x``."""
    return np.full(len(x), constant, dtype=np.int64)


def indices(x: Sequence[int]) -> ndarray:
    """0 .. n - 1."""
    return np.arange(len(x), dtype=np.int64)


def tok_map(x: Sequence[int], f: Callable[[int], float]) -> ndarray:
    """``f`` of each element; what is not an integer is truncated toward zero."""
    (x,) = _sequences(x=x)
    return np.array([int(f(a)) for a in x.tolist()], dtype=np.int64)


def seq_map(x: Sequence[int], y: Sequence[int], f: Callable[[int, int], float]) -> ndarray:
    """``f`` of each pair of elements at one position; what is not an integer is truncated toward zero."""
    x, y = _sequences(x=x, y=y)
    return np.array([int(f(a, b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)], dtype=np.int64)


def select(
    k: Sequence[int], q: Sequence[int], pred: Predicate, causal: bool = False, name: str | None = "select"
) -> ndarray:
    """The selection [i, j] = ``pred(k[j], q[i])``, (n, n); ``causal``: of no later key. ``name`` None: not traced."""
    k, q = _sequences(k=k, q=q)
    # Python integers, one pair at a time: a predicate may use ``and`` and chained comparisons
    rows = [[bool(pred(key, query)) for key in k.tolist()] for query in q.tolist()]
    attention = np.array(rows, dtype=bool).reshape(len(q), len(k))
    attention = np.tril(attention) if causal else attention
    if name is not None and _active:
        _active[-1].steps.append(Step(name, attention.copy()))
    return attention


def sel_width(attention: ndarray) -> ndarray:
    """Number of keys that each query selects, (n,)."""
    return attention.sum(1, dtype=np.int64)


def aggr(attention: ndarray, v: Sequence[int], default: int = 0, reduction: str = "mean") -> ndarray:
    """Mean, max or min of the values each query selects, (n,); ``default`` where it selects none.

    A mean is truncated toward zero, not rounded down: -7 and 0 give -3. Raises ValueError for another ``reduction``
    and where ``attention`` is not boolean and n × n.
    """
    (v,) = _sequences(v=v)
    if attention.dtype != bool or attention.shape != (len(v), len(v)):
        shape = f"{attention.dtype} {attention.shape}"
        raise ValueError(f"attention {shape}: must be boolean and ({len(v)}, {len(v)}), as there are {len(v)} values")
    if reduction == "min":
        return -aggr(attention, -v, -default, "max")
    if reduction == "max":
        lowest = np.iinfo(np.int64).min
        result = np.where(attention, v, lowest).max(1, initial=lowest)
    elif reduction == "mean":
        total = np.where(attention, v, 0).sum(1)
        # whole numbers throughout: a quotient of floats would be wrong from 2^53 on
        result = np.sign(total) * (np.abs(total) // np.maximum(sel_width(attention), 1))
    else:
        raise ValueError(f"reduction = {reduction!r}: must be 'mean', 'max' or 'min'")
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
    """``aggr(select(k, q, pred, causal), v, default, reduction)``: an attention head, (n,), a step of a trace."""
    k, q, v = _sequences(k=k, q=q, v=v)
    attention = select(k, q, pred, causal, name=None)
    result = aggr(attention, v, default, reduction)
    if _active:
        _active[-1].steps.append(Step(name, attention, v, result.copy()))
    return result
