"""Adders, flags, branches and error correction, exhaustively where the inputs can be listed."""

import itertools

import pytest
import torch

from entp_papers.looped.circuits import (
    add_words,
    branch,
    copy_to_memory,
    copy_to_scratchpad,
    correct_errors,
    flag_of_number,
    flag_of_word,
)
from entp_papers.looped.plan import LayerPlan, Rows
from entp_papers.looped.words import check_word, pointer_bits, to_bits, to_signed, to_unsigned, wrap


def rows_of(**sizes):
    rows = Rows()
    for name, size in sizes.items():
        rows.add(name, size)
    return rows


def built(plan, rows, dtype=torch.float64):
    return plan.build_feed_forward(rows.width, dtype)


def adder(bits, dtype=torch.float64):
    rows, plan = rows_of(x=bits, y=bits, bit=1), LayerPlan("add")
    add_words(plan, rows["x"], rows["x"], rows["y"], rows["bit"][0])
    return built(plan, rows, dtype)


def added(ff, x, y, bits):
    dtype = ff.fc_in.weight.dtype
    state = torch.cat([to_bits(x, bits, dtype), to_bits(y, bits, dtype), torch.ones(len(x), 1, dtype=dtype)], 1)
    return to_unsigned(ff(state)[:, :bits]), ff(state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", range(2, 9))
def test_adder_is_exact_for_every_pair(bits, dtype):
    x, y = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits)).T
    total, state = added(adder(bits, dtype), x, y, bits)
    assert torch.equal(total, (x + y) % 2**bits)
    assert torch.equal(state.abs(), torch.ones_like(state))  # nothing but ±1, to the last bit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adder_of_sixteen_bits(dtype):
    x, y = torch.randint(2**16, (2, 20_000), generator=torch.Generator().manual_seed(0))
    assert torch.equal(added(adder(16, dtype), x, y, 16)[0], (x + y) % 2**16)


@pytest.mark.parametrize("bits", [4, 16])
def test_adder_has_the_hidden_units_of_lemma_1(bits):
    """8 per bit, and one per bit for the -1 of ±1 bits."""
    assert adder(bits).fc_in.out_features == 9 * bits


@pytest.mark.parametrize("bits", [3, 8])
def test_increment(bits):
    rows, plan = rows_of(x=bits, out=bits, bit=1), LayerPlan("increment")
    add_words(plan, rows["out"], rows["x"], None, rows["bit"][0], constant=1, in_place=False)
    x = torch.arange(2**bits)
    state = torch.cat([to_bits(x, bits), torch.zeros(len(x), bits), torch.ones(len(x), 1)], 1)
    assert torch.equal(to_unsigned(built(plan, rows)(state)[:, bits : 2 * bits]), (x + 1) % 2**bits)
    assert not built(plan, rows)(torch.zeros(1, rows.width, dtype=torch.float64)).any()  # other tokens stay 0


@pytest.mark.parametrize("bits", range(2, 11))
def test_flag_is_whether_a_word_is_at_most_zero(bits):
    rows, plan = rows_of(word=bits, flag=1), LayerPlan("flag")
    flag_of_word(plan, rows["flag"][0], rows["word"])
    values = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    state = torch.cat([to_bits(values, bits), torch.zeros(len(values), 1)], 1)
    assert torch.equal(built(plan, rows)(state)[:, -1], (values <= 0).double())


def test_flag_of_an_integer():
    rows, plan = rows_of(number=1, where=1, flag=1), LayerPlan("flag")
    flag_of_number(plan, 2, 0, 1)
    values = torch.arange(-5.0, 6.0, dtype=torch.float64)
    state = torch.stack([values, torch.ones(11), torch.zeros(11)], 1)
    assert torch.equal(built(plan, rows)(state)[:, 2], (values <= 0).double())


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_branch_for_every_pointer(bits):
    rows, plan = rows_of(counter=bits, following=bits, target=bits, flag=1, bit=1), LayerPlan("branch")
    branch(plan, rows["counter"], rows["following"], rows["target"], rows["flag"][0], rows["bit"][0])
    stay, jump, flag = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits), torch.arange(2)).T
    state = torch.cat(
        [to_bits(stay - 1, bits), to_bits(stay, bits), to_bits(jump, bits), flag[:, None], torch.ones(len(flag), 1)], 1
    ).double()
    assert torch.equal(to_unsigned(built(plan, rows)(state)[:, :bits]), torch.where(flag == 1, jump, stay))
    assert not built(plan, rows)(torch.zeros(1, rows.width, dtype=torch.float64)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise", [1e-14, 1e-9, 1e-4, 0.249])
def test_error_correction_removes_errors(noise, dtype):
    rows, plan = rows_of(x=300), LayerPlan("correct")
    correct_errors(plan, rows["x"])
    right = torch.arange(300).to(dtype) % 3 - 1
    noisy = right + noise * (2 * torch.rand(300, generator=torch.Generator().manual_seed(0)).to(dtype) - 1)
    corrected = built(plan, rows, dtype)(noisy)
    torch.testing.assert_close(corrected, right, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-15)
    assert torch.equal(built(plan, rows, dtype)(right), right)


@pytest.mark.parametrize("error,corrected", [(0.26, False), (0.25, True), (-0.25, True), (-0.26, False)])
def test_error_correction_fails_beyond_its_tolerance(error, corrected):
    rows, plan = rows_of(x=3), LayerPlan("correct")
    correct_errors(plan, rows["x"])
    right = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    distance = (built(plan, rows)(right + error) - right).abs().max()
    assert (distance < 1e-12) == corrected


def test_copies_need_a_bound_above_twice_the_largest_difference():
    """With C too small a copy to the scratchpad changes other tokens as well."""
    rows = rows_of(target=1, blend=1, bit=1)
    state = torch.tensor([[0.0, 3.0, 0.0], [1.0, 2.0, 1.0]], dtype=torch.float64)  # a memory token and the scratchpad
    for bound, right in ((7.0, True), (5.0, False)):
        plan = LayerPlan("read")
        copy_to_scratchpad(plan, rows["target"], rows["blend"], rows["bit"][0], bound)
        after = built(plan, rows)(state)
        assert after[1].tolist() == [3.0, 0.0, 1.0]
        assert (after[0].tolist() == [0.0, 0.0, 0.0]) == right


def test_copy_to_memory_writes_everywhere_else():
    rows, plan = rows_of(target=1, blend=1, bit=1), LayerPlan("write")
    copy_to_memory(plan, rows["target"], rows["blend"], rows["bit"][0])
    state = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    assert built(plan, rows)(state).tolist() == [[-1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]


@pytest.mark.parametrize("tokens", [2, 3, 16, 17, 1000])
def test_pointers_differ_by_at_least_two(tokens):
    """p_i · p_i = L, and p_i · p_j is at most L - 2 (the paper prints L - 1); the bound is met."""
    L = pointer_bits(tokens)
    p = to_bits(torch.arange(tokens), L)
    products = p @ p.T
    assert torch.equal(products.diagonal(), torch.full((tokens,), L, dtype=torch.float64))
    assert products.fill_diagonal_(-L).max() == L - 2


@pytest.mark.parametrize("bits", [2, 5, 16])
def test_words_and_bits(bits):
    values = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    assert torch.equal(to_signed(to_bits(values, bits)), values)
    assert all(wrap(int(v) + 2**bits, bits) == v for v in values[:50])
    for value, fits in itertools.product((-(2 ** (bits - 1)) - 1, 2 ** (bits - 1)), (False,)):
        with pytest.raises(ValueError, match=f"word of {bits} bits"):
            check_word("x", value, bits)
        assert not fits
