"""Adders, flags, branches and error correction, exhaustively where the inputs can be listed; layers of one lemma."""

import pytest
import torch

from entp_papers.looped import circuits
from entp_papers.looped.circuits import check_word, pointer_bits, to_bits, to_signed, to_unsigned, transpose, transposer
from entp_papers.looped.weights import LayerPlan, Rows

DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [2, 5, 8, 16])
def test_adder_is_exact(bits, dtype):
    """For every pair, of 16 bits for many; with 8 units per bit (Lemma 1) and one for the -1 of ±1 bits."""
    if bits <= 8:
        x, y = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits)).T
    else:
        x, y = torch.randint(2**bits, (2, 20_000), generator=torch.Generator().manual_seed(0))
    plan = LayerPlan("add")
    circuits.add_words(plan, range(bits), range(bits), range(bits, 2 * bits), 2 * bits)
    ff = plan.build_feed_forward(2 * bits + 1, dtype)
    state = ff(torch.cat([to_bits(x, bits, dtype), to_bits(y, bits, dtype), torch.ones(len(x), 1, dtype=dtype)], 1))
    assert torch.equal(to_unsigned(state[:, :bits]), (x + y) % 2**bits)
    assert torch.equal(state.abs(), torch.ones_like(state))  # nothing but ±1, to the last bit
    assert ff.fc_in.out_features == 9 * bits


@pytest.mark.parametrize("bits", [3, 8])
def test_increment(bits):
    rows, plan = Rows(x=bits, out=bits, bit=1), LayerPlan("increment")
    circuits.add_words(plan, rows["out"], rows["x"], None, rows["bit"][0], constant=1, in_place=False)
    x, ff = torch.arange(2**bits), plan.build_feed_forward(rows.width)
    state = torch.cat([to_bits(x, bits), torch.zeros(len(x), bits), torch.ones(len(x), 1)], 1)
    assert torch.equal(to_unsigned(ff(state)[:, bits : 2 * bits]), (x + 1) % 2**bits)
    assert not ff(torch.zeros(1, rows.width, dtype=torch.float64)).any()  # other tokens stay 0


@pytest.mark.parametrize("bits", [2, 5, 10])
def test_flag_is_whether_a_word_is_at_most_zero(bits):
    plan = LayerPlan("flag")
    circuits.flag_of_word(plan, bits, range(bits))
    values = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    assert torch.equal(to_signed(to_bits(values, bits)), values)
    state = torch.cat([to_bits(values, bits), torch.zeros(len(values), 1)], 1)
    assert torch.equal(plan.build_feed_forward(bits + 1)(state)[:, -1], (values <= 0).double())


def test_flag_of_an_integer():
    plan = LayerPlan("flag")
    circuits.flag_of_number(plan, 2, 0, 1)
    values = torch.arange(-5.0, 6.0, dtype=torch.float64)
    state = torch.stack([values, torch.ones(11), torch.zeros(11)], 1)
    assert torch.equal(plan.build_feed_forward(3)(state)[:, 2], (values <= 0).double())


@pytest.mark.parametrize("bits", [2, 6])
def test_branch_for_every_pointer(bits):
    rows, plan = Rows(counter=bits, following=bits, target=bits, flag=1, bit=1), LayerPlan("branch")
    circuits.branch(plan, rows, rows["target"], rows["bit"][0])
    stay, jump, flag = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits), torch.arange(2)).T
    words = [to_bits(value, bits) for value in (stay - 1, stay, jump)]
    ff = plan.build_feed_forward(rows.width)
    found = ff(torch.cat([*words, flag[:, None], torch.ones(len(flag), 1)], 1))[:, :bits]
    assert torch.equal(to_unsigned(found), torch.where(flag == 1, jump, stay))
    assert not ff(torch.zeros(1, rows.width, dtype=torch.float64)).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("noise", "removed"), [(1e-14, True), (1e-4, True), (0.25, True), (0.26, False)])
def test_error_correction_removes_errors_up_to_a_quarter(noise, removed, dtype):
    plan = LayerPlan("correct")
    circuits.correct_errors(plan, range(300))
    ff, right = plan.build_feed_forward(300, dtype), torch.arange(300).to(dtype) % 3 - 1
    assert torch.equal(ff(right), right)
    for error in (noise, -noise):
        assert (float((ff(right + error) - right).abs().max()) < (1e-6 if dtype == torch.float32 else 1e-12)) == removed


def test_copies_need_a_bound_above_twice_the_largest_difference():
    """With C too small a copy to the scratchpad changes other tokens, too; a copy to memory writes everywhere else."""
    state = torch.tensor([[0.0, 3.0, 0.0], [1.0, 2.0, 1.0]], dtype=torch.float64)  # a memory token and the scratchpad
    for bound, right in ((7.0, True), (5.0, False)):
        plan = LayerPlan("read")
        circuits.copy_to_scratchpad(plan, [0], [1], 2, bound)
        after = plan.build_feed_forward(3)(state)
        assert after[1].tolist() == [3.0, 0.0, 1.0]
        assert (after[0].tolist() == [0.0, 0.0, 0.0]) == right
    plan = LayerPlan("write")
    circuits.copy_to_memory(plan, [0], [1], 2)
    state = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    assert plan.build_feed_forward(3)(state).tolist() == [[-1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]


@pytest.mark.parametrize("tokens", [2, 17, 1000])
def test_pointers_differ_by_at_least_two(tokens):
    """p_i · p_i = L, and p_i · p_j is at most L - 2 (the paper prints L - 1); the bound is met."""
    L = pointer_bits(tokens)
    p = to_bits(torch.arange(tokens), L)
    products = p @ p.T
    assert torch.equal(products.diagonal(), torch.full((tokens,), L, dtype=torch.float64))
    assert products.fill_diagonal_(-L).max() == L - 2


@pytest.mark.parametrize("value", [-9, 8])
def test_words_that_do_not_fit_are_named(value):
    with pytest.raises(ValueError, match=f"x = {value}"):
        check_word("x", value, 4)


@pytest.mark.parametrize("d", [2, 7])
def test_one_layer_transposes_a_vectorised_matrix(d):
    a = torch.randn(2, d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(transpose(a), a.transpose(1, 2), rtol=0, atol=1e-9)
    size = transposer(30)[0].size()  # the paper's example
    assert (size["layers"], size["heads"], size["width"]) == (1, 1, 22)
