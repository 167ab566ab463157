"""What the feed-forward halves compute on ±1 bits: adders (Lemma 1), flags and branches (§4.3), error correction.

Every function writes ReLU units into a ``LayerPlan``. All of them leave a token alone whose rows, and whose scratchpad
bit, are 0.
"""

from collections.abc import Sequence

from entp_papers.looped.plan import LayerPlan


def add_words(
    plan: LayerPlan,
    out: Sequence[int],
    x: Sequence[int],
    y: Sequence[int] | None,
    scratchpad: int,
    constant: int = 0,
    in_place: bool = True,
) -> None:
    """out := x + y + constant mod 2^d in one hidden layer (Lemma 1); ``y`` None stands for 0. Bits are ±1.

    With S_j the sum of the lowest j + 1 bits of all terms, bit j is [S_j >= 2^j] - [S_j >= 2·2^j] + [S_j >= 3·2^j].
    At most 6 units per bit, 2 to remove what ``out`` held if ``in_place`` says that it is one of the terms, 1 for the
    -1 of ±1 bits; a term of 0 saves 2.
    """
    for j, target in enumerate(out):
        terms, bias = {}, 0.0
        for word in (x, y):
            for k in range(j + 1) if word is not None else ():
                terms[word[k]] = 2.0 ** (k - 1)  # half the weight, since (b + 1) / 2 is the bit of ±1
                bias += 2.0 ** (k - 1)
        steps = (1, -1, 1) if y is not None else (1, -1)
        gate = 2.0 ** (j + 3) + 2 * constant
        terms[scratchpad] = gate + bias + constant  # all constants enter through the scratchpad bit
        for multiple, sign in enumerate(steps, 1):
            plan.step(terms, {target: 2.0 * sign}, -gate - multiple * 2.0**j)
        plan.unit({scratchpad: 1.0}, {target: -1.0})
        if in_place:
            plan.clear([target])


def flag_of_word(plan: LayerPlan, flag: int, word: Sequence[int], printed: bool = False) -> None:
    """Add to ``flag`` whether a word is at most 0 (eq. 4): its sign bit is set, or all of its bits are -1.

    ``printed`` takes 1 + N as the paper prints it instead of 1 - N.
    """
    plan.unit({word[-1]: 1.0}, {flag: 1.0})
    bits = len(word)
    plan.unit(dict.fromkeys(word, -1.0), {flag: 1.0}, 1.0 + bits if printed else 1.0 - bits)


def flag_of_number(plan: LayerPlan, flag: int, number: int, where: int) -> None:
    """Add to ``flag`` whether an integer is at most 0 (eq. 3), in tokens with ``where`` = 1:

    flag = 1 - relu(x) + relu(x - 1).
    """
    plan.unit({where: 1.0}, {flag: 1.0})
    plan.unit({number: 1.0}, {flag: -1.0})
    plan.unit({number: 1.0}, {flag: 1.0}, -1.0)


def branch(
    plan: LayerPlan,
    counter: Sequence[int],
    following: Sequence[int],
    target: Sequence[int],
    flag: int,
    scratchpad: int,
    printed: bool = False,
) -> None:
    """counter := target if flag else following (§4.3): 2 relu(following - flag) + 2 relu(target - (1 - flag)) - 1.

    The -1 is written only where the scratchpad bit is; ``printed`` writes it into every token, as in the paper.
    """
    for out, stay, jump in zip(counter, following, target, strict=True):
        plan.unit({stay: 1.0, flag: -1.0}, {out: 2.0})
        plan.unit({jump: 1.0, flag: 1.0, scratchpad: -1.0}, {out: 2.0})
        if printed:
            plan.constant[out] = plan.constant.get(out, 0.0) - 1.0
        else:
            plan.unit({scratchpad: 1.0}, {out: -1.0})
        plan.clear([out])


def correct_errors(plan: LayerPlan, rows: Sequence[int], tolerance: float = 0.25) -> None:
    """Round every row to the nearest of -1, 0 and 1 (step 6), right for errors of at most ``tolerance`` < 1/2.

    The paper's formula and what removes the residual, as one piecewise linear function without a constant. Near 0 it is
    -x, near ±1 it is ±1 - x: with the default, whose factors are powers of 2, the sum is free of rounding, and what is
    added to x makes it exactly -1, 0 or 1 however small the error was. The printed constants would absorb it.
    """
    slope = 1 / (1 - 2 * tolerance)
    for i in rows:
        plan.clear([i])
        for sign in (1.0, -1.0):
            plan.unit({i: sign}, {i: sign * slope}, -tolerance)
            plan.unit({i: sign}, {i: -sign * slope}, tolerance - 1)


def copy_to_scratchpad(
    plan: LayerPlan, target: Sequence[int], blend: Sequence[int], scratchpad: int, bound: float = 4.0
) -> None:
    """The feed-forward half of ``read`` (Lemma 2): target := 2 blend - target in the scratchpad, blend := 0.

    ``blend`` holds the mean of what was read and of what ``target`` holds. ``bound`` is the lemma's C: it must exceed
    twice the difference of blend and target, which is at most twice the largest value.
    """
    for t, b in zip(target, blend, strict=True):
        for sign in (1.0, -1.0):
            plan.unit({scratchpad: bound, b: 2 * sign, t: -2 * sign}, {t: sign}, -bound)
    plan.clear(blend)


def copy_to_memory(
    plan: LayerPlan,
    target: Sequence[int],
    blend: Sequence[int],
    scratchpad: int,
    bound: float = 4.0,
    printed: bool = False,
) -> None:
    """The feed-forward half of ``write`` (Lemma 3): target := 2 blend - target outside the scratchpad, blend := 0.

    ``printed`` adds the second ReLU, as the paper prints it, where it must be subtracted.
    """
    for t, b in zip(target, blend, strict=True):
        for sign in (1.0, -1.0):
            plan.unit({scratchpad: -bound, b: 2 * sign, t: -2 * sign}, {t: 1.0 if printed else sign})
    plan.clear(blend)
