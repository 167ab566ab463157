"""Integers as ±1 bits and circuits on them: adders, flags, branches, copies, error correction.

Pointers (§4.1) and two's complement words (§5.1) have their least significant bit first. Every
circuit writes ReLU units into a ``LayerPlan``; a copy writes a head, too. A token whose rows and
scratchpad bit are 0 is left unchanged.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from entp_papers.looped.layers import LayerPlan, Rows

Word = Sequence[int]  # coordinates of bits
# An adder's sums stay below 2^(bits + 2), its gates below 2^(bits + 3): exact in fp32.
MOST_BITS = 20


def pointer_bits(tokens: int) -> int:
    """Count the bits of a pointer to one of ``tokens`` positions, L = ceil(log2 n)."""
    return max(1, math.ceil(math.log2(tokens)))


def to_bits(values: Tensor, bits: int) -> Tensor:
    """Write integers mod 2^bits as ±1 bits (..., bits): negative ones in two's complement."""
    return (2 * (values.unsqueeze(-1) >> torch.arange(bits) & 1) - 1).double()


def to_unsigned(bits_X: Tensor) -> Tensor:
    """Read ±1 bits (..., bits) as integers from 0 to 2^bits - 1."""
    return ((bits_X > 0).long() << torch.arange(bits_X.shape[-1])).sum(-1)


def to_signed(bits_X: Tensor) -> Tensor:
    """Read ±1 bits (..., bits) as integers in two's complement."""
    return wrap(to_unsigned(bits_X), bits_X.shape[-1])


def wrap(value: int | Tensor, bits: int) -> int | Tensor:
    """Return ``value`` mod 2^bits as a signed word, from -2^(bits-1) to 2^(bits-1) - 1."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def temperature(tokens: int, error: float) -> float:
    """Return the paper's bound λ = ln(n³ / ε) for heads that follow pointers (Lemma 2)."""
    return math.log(tokens**3 / error)


def add_words(
    plan: LayerPlan,
    out: Word,
    x: Word,
    y: Word | None,
    scratchpad: int,
    constant: int = 0,
    in_place: bool = True,
) -> None:
    """Write out := x + y + constant mod 2^d in one hidden layer (Lemma 1); ``y`` None stands for 0.

    With S_j the sum of the lowest j + 1 bits of all terms, bit j is [S_j >= 2^j] - [S_j >= 2·2^j] +
    [S_j >= 3·2^j]. At most 6 units per bit, 2 to remove the old value of ``out`` if it is one of
    the terms (``in_place``), 1 for the -1 of ±1 bits; a term of 0 saves 2.
    """
    for j, target in enumerate(out):
        # half the weight of a bit, since it is (b + 1) / 2 for b = ±1
        terms = {
            word[k]: 2.0 ** (k - 1) for word in (x, y) if word is not None for k in range(j + 1)
        }
        steps = (1, -1, 1) if y is not None else (1, -1)
        gate = 2.0 ** (j + 3) + 2 * constant
        # all constants enter through the scratchpad bit
        terms[scratchpad] = gate + sum(terms.values()) + constant
        for multiple, sign in enumerate(steps, 1):
            plan.step(terms, {target: 2.0 * sign}, -gate - multiple * 2.0**j)
        plan.unit(scratchpad, {target: -1.0})
        if in_place:
            plan.clear([target])


def flag_of_word(plan: LayerPlan, flag: int, word: Word, printed: bool = False) -> None:
    """Add to ``flag`` whether a word is at most 0 (eq. 4): its sign is set, or all its bits are -1.

    ``printed`` takes 1 + N as the paper prints it instead of 1 - N.
    """
    plan.unit(word[-1], flag)
    plan.unit(dict.fromkeys(word, -1.0), flag, 1.0 + len(word) if printed else 1.0 - len(word))


def branch(
    plan: LayerPlan, rows: Rows, target: Word, scratchpad: int, printed: bool = False
) -> None:
    """Write counter := target if flag else following (§4.3).

    ``rows`` names counter, following and flag. The -1 is written only where the scratchpad bit is;
    ``printed`` writes it into every token, as in the paper.
    """
    (flag,) = rows["flag"]
    for out, stay, jump in zip(rows["counter"], rows["following"], target, strict=True):
        plan.unit({stay: 1.0, flag: -1.0}, {out: 2.0})
        plan.unit({jump: 1.0, flag: 1.0, scratchpad: -1.0}, {out: 2.0})
        if printed:
            plan.constant[out] = -1.0
        else:
            plan.unit(scratchpad, {out: -1.0})
        plan.clear([out])


def correct_errors(plan: LayerPlan, rows: Word) -> None:
    """Round every row to the nearest of -1, 0 and 1 (step 6), right for errors of at most 1/4.

    This is the paper's formula and the removal of the residual, as one piecewise linear function
    without a constant. Near 0 it is -x, near ±1 it is ±1 - x. All factors are powers of 2, so sums
    have no rounding and the result is exactly -1, 0 or 1 however small the error was. The printed
    constants would absorb a small error.
    """
    for i in rows:
        plan.clear([i])
        for sign in (1.0, -1.0):
            plan.unit({i: sign}, {i: 2 * sign}, -0.25)
            plan.unit({i: sign}, {i: -2 * sign}, -0.75)


def copy_pointed(
    plan: LayerPlan,
    rows: Rows,
    pointer: Word,
    memory: str,
    held: str,
    blend: str,
    heat: float,
    to_memory: bool = False,
    bound: float = 4.0,
    printed: bool = False,
) -> None:
    """Copy from the token pointed to into the scratchpad (Lemma 2), or back (Lemma 3).

    ``rows`` names position, scratchpad, a token's value ``memory``, the scratchpad's ``held``, and
    ``blend``, which is 0 before and afterwards. A head with λ = ``heat`` lets every token attend to
    those whose pointer or position is its own: blend := the mean of the two values. Then held := 2
    blend - held in the scratchpad, or, ``to_memory``, memory := 2 blend - memory everywhere else.
    ``bound`` is the lemmas' C: it must exceed twice the difference of blend and target, which is at
    most twice the largest value. ``printed`` adds the second ReLU, as the paper prints Lemma 3,
    where it must be subtracted.
    """
    codes = [{p: 1.0, own: 1.0} for p, own in zip(pointer, rows["position"], strict=True)]
    values = [
        ({m: 1.0, h: 1.0}, b) for m, h, b in zip(rows[memory], rows[held], rows[blend], strict=True)
    ]
    plan.head([(code, code) for code in codes], values, heat)
    (scratchpad,) = rows["scratchpad"]
    target = rows[memory if to_memory else held]
    gate, bias = (-bound, 0.0) if to_memory else (bound, -bound)
    for t, b in zip(target, rows[blend], strict=True):
        for sign in (1.0, -1.0):
            plan.unit(
                {scratchpad: gate, b: 2 * sign, t: -2 * sign}, {t: 1.0 if printed else sign}, bias
            )
    plan.clear(rows[blend])


def branch_in_a_layer(bits: int, printed: bool = False) -> LayerPlan:
    """Plan a branch on counter, following and target of ``bits`` bits, flag and scratchpad bit."""
    plan = LayerPlan("branch")
    rows = Rows(counter=bits, following=bits, target=bits, flag=1, bit=1)
    branch(plan, rows, rows["target"], rows["bit"][0], printed)
    return plan


def add_in_a_layer(x: Tensor, y: Tensor, bits: int) -> tuple[Tensor, LayerPlan]:
    """Run an adder on integers in fp32; return what its ``bits`` output bits say, and the layer."""
    plan = LayerPlan("add")
    add_words(plan, range(bits), range(bits), range(bits, 2 * bits), 2 * bits)
    state = plan.apply_to(to_bits(x, bits), to_bits(y, bits), torch.ones(len(x), 1))
    return to_unsigned(state[:, :bits]), plan


def flag_in_a_layer(values: Tensor, bits: int, printed: bool = False) -> tuple[Tensor, LayerPlan]:
    """Run a flag on integers in fp32; return the flags, and the layer."""
    plan = LayerPlan("flag")
    flag_of_word(plan, bits, range(bits), printed)
    state = plan.apply_to(to_bits(values, bits), torch.zeros(len(values), 1))
    return state[:, -1], plan
