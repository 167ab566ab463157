"""Algorithms 4 to 6 beyond what their claims try, and the interpreter's semantics."""

import operator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_lib.tasks.counting import count3
from entp_lib.tasks.triplets import triplet_label
from entp_papers.entp.rasp import interpreter as rasp
from entp_papers.entp.rasp import programs

element = st.one_of(st.integers(0, 9), st.integers(0, programs.LARGEST))
sequences = st.lists(element, min_size=1, max_size=12)


@given(x=sequences)
@example(x=[0])
@example(x=[0] * 9)  # every pair counts, so that the last step selects nothing
def test_algorithm_4_is_count3(x):
    assert programs.count3_encoder(x).tolist() == [count3(x)] * len(x)


@settings(max_examples=50)
@given(x=st.lists(element, min_size=1, max_size=6))
def test_algorithm_6_is_causal(x):
    """One pass over the finished text gives every token, although one of its calls is printed
    without causal.
    """
    generated, _ = programs.generate_chain_of_thought(x)
    text = [*x, programs.EOS, *generated]
    next_tokens = programs.count3_chain_of_thought(text).tolist()
    assert next_tokens[len(x) : -1] == generated
    for t in range(1, len(text)):
        assert programs.count3_chain_of_thought(text[:t]).tolist() == next_tokens[:t]


@given(x=sequences, modulus=st.one_of(st.integers(1, 12), st.just(128)))
@example(x=[128], modulus=128)
@example(x=[0, 5], modulus=128)
def test_algorithm_5_is_match3_at_every_position(x, modulus):
    prefixes = [x[:length] for length in range(1, len(x) + 1)]
    expected = [triplet_label(prefix, modulus, "first", "exists") for prefix in prefixes]
    assert programs.match3_decoder(x, modulus).tolist() == expected


test_mistakes_are_named = named(
    (lambda: programs.count3_encoder([]), "x is empty"),
    (lambda: programs.count3_encoder([3, -2]), r"x\[1\] = -2"),
    (lambda: programs.count3_encoder([3, 2**31]), r"x\[1\] = 2147483648"),
    (lambda: programs.count3_encoder(["a"]), r"x\[0\] = 'a'"),
    (
        lambda: programs.count3_encoder([1, 2], reduce=False),
        r"x\[1\] = 2: must be below the length",
    ),
    (lambda: programs.generate_chain_of_thought([3, programs.EOS]), r"x\[1\] = "),
    (lambda: programs.count3_chain_of_thought([programs.EOS, 3]), r"x\[0\] = "),
    (lambda: programs.match3_decoder([1], 0), "modulus = 0"),
    (lambda: rasp.aggr(rasp.np.ones((2, 2)), [1, 2], reduction="sum"), "reduction = 'sum'"),
)


def test_predicates_take_the_key_first():
    attention = rasp.select(k=[1, 2, 3], q=[2, 2, 2], pred=operator.lt)
    assert attention.tolist() == [[True, False, False]] * 3  # row = query, column = key


@given(total=st.integers(-(2**61), 2**61), n=st.integers(1, 9))
@example(total=-7, n=2)
@example(total=-1, n=3)
def test_means_are_truncated_toward_zero(total, n):
    x = [total, *[0] * (n - 1)]
    expected = total // n if total >= 0 else -(-total // n)
    assert rasp.kqv(x, x, x, rasp.true).tolist() == [expected] * n


@pytest.mark.parametrize(("reduction", "expected"), [("mean", -3), ("max", 0), ("min", -7)])
def test_reductions_of_what_is_selected_or_the_default(reduction, expected):
    attention = np.eye(3, dtype=bool)
    attention[0, 1] = True
    attention[1] = False
    found = rasp.aggr(attention, [-7, 0, 4], 9, reduction)
    assert found.tolist() == [expected, 9, 4]
    assert rasp.sel_width(attention).tolist() == [2, 0, 1]


def test_a_trace_holds_each_selection_in_order_as_it_was():
    with rasp.traced() as steps:
        attention = rasp.select([1, 2], [2, 2], rasp.equals, name="where")
        before = attention.copy()
        rasp.kqv([0, 1], [1, 0], rasp.sel_width(attention), rasp.equals, name="what")
    attention[:] = False
    where, what = steps
    assert (where.name, what.name) == ("where", "what")
    assert np.array_equal(where.attention, before)
    assert what.attention.tolist() == [[False, True], [True, False]]
