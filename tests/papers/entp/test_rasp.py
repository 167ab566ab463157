"""Algorithms 2 to 6 against brute force, the interpreter's semantics, and what does not hold as
printed.
"""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from entp_lib.tasks import counting
from entp_papers.entp.rasp import experiment, programs
from entp_papers.entp.rasp import interpreter as rasp

FIGURE_2 = [4, 41, 1, 40, 44, 26, 38, 34, 44, 0, 58, 46, 10, 10, 24, 49]  # its seed

element = st.one_of(st.integers(0, 9), st.integers(0, 63), st.integers(0, programs.LARGEST))
sequences = st.lists(element, min_size=1, max_size=12)
small_sequences = st.lists(element, min_size=1, max_size=6)
below_n = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)
)


def pairs(x):
    """Ordered pairs, i = j included, whose sum with the last element is a multiple of the length:
    equation 6.
    """
    return sum((a + b + x[-1]) % len(x) == 0 for a in x for b in x)


def count3(x):
    return pairs(x) % len(x)


def match3(x, modulus):
    return int(any((x[0] + a + b) % modulus == 0 for a in x for b in x))


# Count3


@given(x=sequences)
@example(x=[0])
@example(x=[7])
@example(x=FIGURE_2)
def test_algorithms_2_3_and_4_are_count3(x):
    assert counting.count3_quadratic(x) == counting.count3(x) == count3(x)
    assert programs.count3_encoder(x).tolist() == [count3(x)] * len(x)


@given(x=below_n)
def test_algorithm_4_needs_no_reduction_below_n(x):
    assert programs.count3_encoder(x, reduce=False).tolist() == [count3(x)] * len(x)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_algorithm_4_where_every_pair_counts(n):
    """With count = n² the last step selects nothing: the default is the answer."""
    with rasp.traced() as steps:
        assert programs.count3_encoder([0] * n, reduce=False).tolist() == [0] * n
    assert not steps[-1].attention.any()


def test_algorithm_4_as_printed_is_wrong_from_n_on():
    """x_n = n is enough; so is Figure 2's seed: §6.3 draws elements to 63 at lengths from 16."""
    for x in ([1, 2], FIGURE_2):
        forced = programs._count3_encoder_as_printed(np.array(x))
        assert forced[-1] != count3(x)
        assert programs.count3_encoder(x)[-1] == count3(x)
        with pytest.raises(ValueError, match=r"x\[\d+\] = \d+: must be below the length"):
            programs.count3_encoder(x, reduce=False)


@settings(max_examples=50)
@given(x=small_sequences)
@example(x=[0])
@example(x=[0, 0, 0])
def test_algorithm_6_takes_2n_and_2_steps(x):
    n = len(x)
    generated, answer = programs.generate_chain_of_thought(x)
    residues = [-a % n for a in x]
    assert len(generated) == 2 * n + 2
    assert generated[:n] == [r + 1 for r in residues]
    assert generated[n : 2 * n] == [residues.count((a + x[-1]) % n) for a in x]
    assert generated[2 * n :] == [count3(x), programs.EOS]
    assert answer == count3(x)


@settings(max_examples=50)
@given(x=small_sequences)
def test_algorithm_6_is_causal(x):
    """One pass over the finished text gives every token, although one of its calls is printed
    without causal.
    """
    generated, _ = programs.generate_chain_of_thought(x)
    text = [*x, programs.EOS, *generated]
    next_tokens = programs.count3_chain_of_thought(text)
    assert next_tokens[len(x) : -1].tolist() == generated
    assert next_tokens[: len(x)].tolist() == [programs.EOS] * len(x)
    for t in range(1, len(text)):
        assert programs.count3_chain_of_thought(text[:t]).tolist() == next_tokens[:t].tolist()


# Match3′

moduli = st.one_of(st.integers(1, 12), st.just(128))


@given(x=sequences, modulus=moduli)
@example(x=[128], modulus=128)
@example(x=[0, 5], modulus=128)
def test_algorithm_5_is_match3_at_every_position(x, modulus):
    expected = [match3(x[:t], modulus) for t in range(1, len(x) + 1)]
    assert programs.match3_bruteforce(x, modulus) == expected
    assert programs.match3_decoder(x, modulus).tolist() == expected


def test_algorithm_5_as_printed_is_wrong_at_a_prefix():
    x = [1, 126]  # 1 + 1 + 126 = 128, but x_1 alone makes 3
    assert programs.match3_bruteforce(x) == programs.match3_decoder(x).tolist() == [0, 1]
    assert programs.match3_decoder(x, causal=False).tolist() == [1, 1]
    for causal, looks_ahead in ((False, [False, True, True]), (True, [False] * 3)):
        with rasp.traced() as steps:
            programs.match3_decoder(x, causal=causal)
        assert [bool(np.triu(step.attention, 1).any()) for step in steps] == looks_ahead


# bad input


@pytest.mark.parametrize(
    "program",
    "count3_encoder match3_bruteforce match3_decoder count3_chain_of_thought generate_chain_of_thought".split(),
)
def test_bad_sequences(program):
    bad = {
        "x is empty": [],
        r"x\[1\] = -2": [3, -2],
        r"x\[1\] = 2147483648": [3, 2**31],
        r"x\[0\] = 'a'": ["a"],
    }
    for named, x in bad.items():
        with pytest.raises(ValueError, match=named):
            getattr(programs, program)(x)


def test_bad_arguments_are_named():
    for named, call in {
        r"x\[1\] = ": lambda: programs.generate_chain_of_thought([3, programs.EOS]),
        r"x\[0\] = ": lambda: programs.count3_chain_of_thought([programs.EOS, 3]),
        "modulus = 0": lambda: programs.match3_bruteforce([1], 0),
        "modulus = 2.5": lambda: programs.match3_decoder([1], 2.5),
    }.items():
        with pytest.raises(ValueError, match=named):
            call()


# the interpreter


def test_predicates_take_the_key_first():
    attention = rasp.select(k=[1, 2, 3], q=[2, 2, 2], pred=lambda key, query: key < query)
    assert attention.tolist() == [[True, False, False]] * 3  # row = query, column = key


@given(total=st.integers(-(2**61), 2**61), n=st.integers(1, 9))
@example(total=-7, n=2)
@example(total=-1, n=3)
def test_means_are_truncated_toward_zero(total, n):
    x = [total, *[0] * (n - 1)]
    expected = total // n if total >= 0 else -(-total // n)
    assert rasp.kqv(x, x, x, rasp.true).tolist() == [expected] * n


@given(data=st.data(), n=st.integers(1, 6), default=st.integers(-99, 99))
def test_reductions_of_what_is_selected_or_the_default(data, n, default):
    v = data.draw(st.lists(st.integers(-50, 50), min_size=n, max_size=n))
    attention = np.array(
        data.draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    ).reshape(n, n)
    chosen = [[a for a, taken in zip(v, row, strict=True) if taken] for row in attention]
    reductions = {"max": max, "min": min, "mean": lambda c: int(sum(c) / len(c))}
    for name, reduction in reductions.items():
        expected = [reduction(c) if c else default for c in chosen]
        assert rasp.aggr(attention, v, default, name).tolist() == expected
    assert rasp.sel_width(attention).tolist() == [len(c) for c in chosen]


# traces


def test_a_trace_holds_each_selection_in_order():
    with rasp.traced() as steps:
        attention = rasp.select([1, 2], [2, 2], rasp.equals, name="where")
        result = rasp.kqv([0, 1], [1, 0], rasp.sel_width(attention), rasp.equals, name="what")
    result[:], attention[:] = 9, False  # the trace keeps what was computed
    where, what = steps
    assert (where.name, where.result, where.attention.tolist()) == (
        "where",
        None,
        [[False, True]] * 2,
    )
    assert (what.name, what.result.tolist()) == ("what", [1, 1])


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30), st.integers(1, 31))
def test_blocks_of_counters_trade_time_for_space(x, block):
    """Right for any number of counters, in 2n steps a block."""
    answer, steps = programs.count3_blocks(x, block)
    assert answer == counting.count3(x)
    assert steps == 2 * len(x) * -(-len(x) // block)


@pytest.mark.parametrize("x", [[3, 1, 4, 1, 5, 9, 2, 6], [7, 100, 3, 255, 0, 0, 9], [5], [0] * 10])
def test_program_and_constructed_weights_go_the_same_way_step_by_step(x):
    rows = experiment.step_by_step(x)
    assert rows.loc["Count3, the sum mod n"].eq(counting.count3(x)).all(axis=None)
    program, model = rows.xs("Algorithm 4", level="by"), rows.xs("Transformer", level="by")
    assert (program % len(x)).equals(model % len(x))
