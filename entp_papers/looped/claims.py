"""The paper's statements, one function each, whose parameters are the studies that decide it."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from entp_lab.statistics import reaches
from entp_lab.store import Record
from entp_lab.theory import Outcome, claim
from entp_papers.looped.block_studies import slope
from entp_papers.looped.programs import DOUBLE, THIRD, compile_counters
from entp_papers.looped.running import interpret

EXACT = 1e-9  # largest error of a result that is exact up to rounding and nearly hard attention


def runs_exactly(random_programs: Record, library: Record) -> bool:
    """Return whether random programs and the library's agree with the interpreter, bit for bit."""
    return random_programs.metrics["wrong"] == 0 and library.metrics["wrong"] == 0


def never_fails(errata: Record, form: str, *names: str) -> bool:
    """Return whether errata have no failure in the "printed" or the "corrected" form."""
    return all(errata.metrics[name][form] == 0 for name in names)


# The computer: circuits, pointers, SUBLEQ, FLEQ


@claim("LT-1", section="Lemma 1")
def a_layer_adds_numbers(circuits: Record, errata: Record) -> Outcome:
    """Add numbers of d bits with at most 8d hidden units, and try every pair, or many."""
    adders = pd.DataFrame(circuits.curves).query("circuit.str.startswith('adder')")
    bits = adders["circuit"].str.extract(r"(\d+)", expand=False).astype(int)
    units = (adders["hidden"] / bits).max() - 2  # two a bit remove the old value
    right = circuits.metrics["wrong"] == 0 and never_fails(errata, "corrected", "E9")
    return Outcome(
        never_fails(errata, "printed", "E9"),
        f"{circuits.metrics['wrong']} wrong of {circuits.metrics['tried']:,} inputs",
        correction=f"mod 2^d, or with d + 1 outputs; {units:g}d hidden units, "
        "and 2d more that remove the old value",
        corrected=right and units <= 8,
    )


@claim("LT-2", section="Lemma 2")
def a_head_reads_what_a_pointer_names(copying: Record, off_target: Record) -> Outcome:
    """Copy vectors from the token that a pointer names, and bound the attention to all others."""
    error = copying.metrics["largest_error"]
    return Outcome(error < EXACT and off_target.metrics["within_bound"], f"error {error:.1e}")


@claim("LT-3", section="Lemma 3")
def a_head_writes_where_a_pointer_names(
    copying: Record, errata: Record, random_programs: Record, library: Record
) -> Outcome:
    """Write vectors to the token that a pointer names."""
    error = copying.metrics["largest_error"]
    exact = error < EXACT and runs_exactly(random_programs, library)
    return Outcome(
        never_fails(errata, "printed", "E2"),
        f"error {error:.1e}",
        correction="the second ReLU is subtracted",
        corrected=exact and never_fails(errata, "corrected", "E2"),
    )


@claim("LT-4.3", section="Section 4.3")
def layers_flag_and_branch(
    circuits: Record, errata: Record, random_programs: Record, library: Record
) -> Outcome:
    """Flag words that are at most 0 and choose the next program counter, for every input."""
    exact = circuits.metrics["wrong"] == 0 and runs_exactly(random_programs, library)
    return Outcome(
        never_fails(errata, "printed", "E1", "E4"),
        f"{circuits.metrics['wrong']} wrong of {circuits.metrics['tried']:,} inputs",
        correction="1 - N in equation 4; the -1 of p_next only where the scratchpad bit is",
        corrected=exact and never_fails(errata, "corrected", "E1", "E4"),
    )


@claim("LT-4", section="Lemma 4")
def nine_layers_and_two_heads_run_subleq(
    random_programs: Record, library: Record, drift: Record, sizes: Record
) -> Outcome:
    """Run SUBLEQ programs, one for very long, on a machine of the stated size."""
    size = sizes.metrics["machines"]["SUBLEQ (Lemma 4)"]
    by_tokens = pd.DataFrame(sizes.curves)
    # all of the width but 12 bits of pointers is the same for every number of tokens
    logarithmic = (by_tokens["width"] - 12 * by_tokens["pointer"]).nunique() == 1
    small = size["layers"] <= 9 and size["heads"] <= 2 and logarithmic
    exact = runs_exactly(random_programs, library) and drift.metrics["wrong"] == 0
    return Outcome(exact and small, f"{random_programs.metrics['programs']:,} runs of programs")


def computed(code: Sequence[tuple], counter: str, **counters: int) -> int:
    """Return the counter that a compiled counter machine ends with."""
    program = compile_counters(code, counters)
    return interpret(program, 10_000).memories[-1][program.cell(counter)]


@claim("LT-fn2", section="Footnote 2")
def subleq_runs_counter_machines(random_programs: Record, library: Record) -> Outcome:
    """Run counter machines compiled to SUBLEQ, which are among the programs of the library."""
    right = all(
        computed(DOUBLE, "x", x=x, y=0) == 2 * x and computed(THIRD, "q", x=x, q=0) == x // 3
        for x in range(10)
    )
    return Outcome(
        runs_exactly(random_programs, library) and right,
        f"{library.metrics['passes']:,} passes of the library",
    )


@claim("LT-T2", section="Theorem 2")
def fleq_runs_on_nine_layers_and_its_blocks(fleq: Record) -> Outcome:
    """Run random FLEQ programs beside the exact functions, on a machine of the stated size."""
    found = fleq.metrics
    small = found["size"]["layers"] <= 13 and found["size"]["heads"] <= 4
    # linear in d and in the bits of a pointer, which tells items and commands apart
    *terms, width = np.array(found["widths"], dtype=float).T
    terms = np.column_stack([*terms, np.ones_like(width)])
    left = width - terms @ np.linalg.lstsq(terms, width, rcond=None)[0]
    small = small and abs(left).max() < 1e-6
    right = found["wrong_branches"] == 0 and found["largest_error"] < 1e-4
    return Outcome(right and small, f"error {found['largest_error']:.1e} in {found['steps']} steps")


@claim("LT-C1", section="Corollary 1")
def calls_and_branches_may_be_apart(fleq: Record) -> Outcome:
    """Run the same programs with every branch as a command of its own."""
    return Outcome(fleq.metrics["apart"] < 1e-4, f"they differ by {fleq.metrics['apart']:.1e}")


@claim("LT-5.2", section="Section 5.2")
def the_scratchpad_alone_sees_everything(restricted: Record) -> Outcome:
    """Run programs where every token but the scratchpad sees itself and the scratchpad."""
    wrong = restricted.metrics["wrong"]
    return Outcome(wrong == 0, f"{wrong} wrong of {restricted.metrics['passes']:,} passes")


# Matrices: blocks that keep Definition 1, with one head, few layers and a width of order d


def keeps_contract(contract: Record, layers: int, *names: str, tolerance: float = EXACT) -> Outcome:
    """Check blocks against Definition 1 and the stated size, for every d that was tried."""
    rows = pd.DataFrame(contract.curves)
    rows["width"] /= rows["d"] + 1
    worst = rows.groupby("block").max().loc[list(names)]
    small = worst["layers"].le(layers) & worst["heads"].eq(1) & worst["width"].le(8)
    exact = worst["error"].lt(tolerance) & worst["previous"].lt(1e-9) & worst["padding"].lt(1e-8)
    holds = contract.metrics["kept"] and (small & exact).all()
    return Outcome(holds, f"error {worst['error'].max():.1e}")


@claim("LT-6", section="Lemma 6")
def four_layers_transpose(contract: Record) -> Outcome:
    """Transpose a matrix, a token per column, in four layers with one head."""
    return keeps_contract(contract, 4, "A^T", tolerance=1e-8)


@claim("LT-6.2", section="Section 6.2")
def softmax_is_nearly_linear(errata: Record) -> Outcome:
    """Compare the softmax of small scores and a large one with a linear function."""
    found = errata.metrics["E7"]
    return Outcome(
        found["printed"] < 0.1,
        f"error {found['printed']:.1e} as printed, {found['corrected']:.1e} as corrected",
        correction="e^C/δ softmax([δx, C]) - 1/δ is x up to δ",
        corrected=found["corrected"] < 1e-5,
    )


@claim("LT-7", section="Lemma 7")
def two_layers_multiply_matrices(contract: Record) -> Outcome:
    """Multiply matrices in two layers with one head."""
    return keeps_contract(contract, 2, "A^T B", "B^T A", "A^T A", "B^T B", tolerance=1e-3)


@claim("LT-8", section="Lemma 8")
def three_layers_add(contract: Record) -> Outcome:
    """Add matrices in at most three layers with one head."""
    return keeps_contract(contract, 3, "A + B")


@claim("LT-9", section="Lemma 9")
def three_layers_subtract(contract: Record) -> Outcome:
    """Subtract matrices in at most three layers with one head."""
    return keeps_contract(contract, 3, "A - B")


@claim("LT-C2", section="Corollary 2")
def two_layers_multiply_numbers(contract: Record) -> Outcome:
    """Multiply numbers, matrices of 1 × 1 among them, in two layers with one head."""
    return keeps_contract(contract, 2, "A^T B", tolerance=1e-3)


@claim("LT-C3", section="Corollary 3")
def two_layers_compute_a_percentage(contract: Record) -> Outcome:
    """Divide by 100 in two layers with one head."""
    return keeps_contract(contract, 2, "A / 100")


@claim("LT-8-30", section="Section 8")
def one_layer_transposes_a_vectorised_matrix(transpose: Record) -> Outcome:
    """Transpose a matrix of one entry per token in one layer with one head."""
    error = transpose.metrics["largest_error"]
    return Outcome(error < 1e-8, f"error {error:.1e}")


# Functions by sums of sigmoids, squares by depth, the calculator


@claim("LT-5", section="Lemma 5")
def heads_sum_sigmoids(sigmoids: Record) -> Outcome:
    """Compute a chosen sum of m sigmoids with a head per sigmoid."""
    error = max(sigmoids.metrics["lemma_5"].values())
    sizes = sigmoids.metrics["lemma_5_sizes"].items()
    small = all(layers <= 3 and heads <= int(m) for m, (layers, heads) in sizes)
    return Outcome(small and error < 1e-10, f"error {error:.1e}")


@claim("LT-T3", section="Theorem 3")
def functions_are_sums_of_sigmoids(sigmoids: Record) -> Outcome:
    """Leave Barron's theorem undecided: examples cannot show it."""
    slopes = sigmoids.metrics["slopes"]
    return Outcome(None, f"all examples fall at least as fast as m^{max(slopes.values()):.1f}")


@claim("LT-6.3", section="Section 6.3")
def attention_squares_at_constant_depth(depth: Record) -> Outcome:
    """Square numbers by two layers of attention, and by ReLU networks, deep or wide."""
    found = depth.metrics
    squares = found["best_attention"] < 1e-6 and abs(found["factor_of_a_level"] - 4) < 0.1
    return Outcome(
        squares and found["one_wide_layer"] > found["best_attention"],
        f"two layers of attention err by {found['best_attention']:.1e}",
        correction="for networks of a width that does not grow; "
        "that they need it is cited there, not tried",
        corrected=squares,
    )


@claim("LT-10", section="Lemma 10")
def inverses_are_sums_of_sigmoids(errata: Record) -> Outcome:
    """Count the sigmoids that 1/x needs for an error of 0.02."""
    found = errata.metrics["E10"]
    return Outcome(
        found["dimension"] >= found["scale"],
        f"{found['sigmoids']} sigmoids where the lemma's scale is {found['scale']:.0f}",
        correction="the condition is on m, the number of sigmoids",
        corrected=found["sigmoids"] <= found["scale"],
    )


@claim("LT-11", section="Lemma 11")
def roots_are_sums_of_sigmoids(sigmoids: Record) -> Outcome:
    """Approximate √x on [0, C] with an error of order √C / m."""
    found = sigmoids.metrics["slopes"]["√x on [0, 100]"]
    by_range = sigmoids.metrics["roots"].items()
    scaled = [error / math.sqrt(float(C)) for C, error in by_range]
    alike = max(scaled) <= 1.1 * min(scaled)
    return Outcome(found <= -0.9 and alike, f"the error falls as m^{found:.2f}")


def on_printed_range(ranges: Record, function: str, bound: float) -> Outcome:
    """Check that m heads keep the printed rate of the error on the range that grows with m."""
    rows = pd.DataFrame(ranges.curves).query("function == @function")
    small = (rows["heads"] <= rows["m"]).all() and rows["layers"].max() <= 3
    worst = rows["scaled"].max()
    evidence = f"constant of at most {worst:.1f} for x up to e^{rows['log_of_largest'].max():.0f}"
    return Outcome(small and worst <= bound, evidence)


@claim("LT-C4", section="Corollary 4")
def heads_invert_numbers(ranges: Record) -> Outcome:
    """Invert numbers in [1/√m, e^m] with m heads and an error of order 1/√m."""
    return on_printed_range(ranges, "1/x", 2.0)


@claim("LT-C5", section="Corollary 5")
def heads_take_roots(ranges: Record) -> Outcome:
    """Take roots of numbers in [0, m²] with m heads and an error of order 1/m."""
    return on_printed_range(ranges, "√x", 10.0)


@claim("LT-C6", section="Corollary 6")
def one_head_sums_sigmoids(one_head_sums: Record) -> Outcome:
    """Compute sums of m sigmoids with one head and a width that grows as m."""
    rows = pd.DataFrame(one_head_sums.curves)
    small = rows["heads"].max() == 1 and rows["layers"].max() <= 3
    linear = (rows["width"] - rows["m"]).nunique() == 1
    error = rows["error"].max()
    return Outcome(small and linear and error < EXACT, f"error {error:.0e}, width m + 9")


@claim("LT-T4", section="Theorem 4")
def a_calculator_of_six_operations(calculator: Record, sizes: Record, ranges: Record) -> Outcome:
    """Run all six operations in a program, and inverses and roots by themselves."""
    by_operation = pd.DataFrame(calculator.curves).groupby("operation")
    inverse = slope(by_operation.get_group("inv"), "m")
    root = slope(by_operation.get_group("sqrt"), "m")
    machine = sizes.metrics["machines"]["calculator (Theorem 4), m = 100"]
    heads = machine["blocks"]  # of each; Theorem 2 has their sum
    small = machine["layers"] <= 12 and machine["heads"] <= sum(heads.values())
    small = small and max(heads["inv"], heads["sqrt"]) <= 101
    alone = reaches(-0.5, inverse) and reaches(-0.9, root)
    alone = alone and on_printed_range(ranges, "1/x, negative too", 2.0).holds
    return Outcome(
        False,
        f"inverses err as m^{inverse:.2f}, roots as m^{root:.2f}",
        correction="in a program on numbers in [0.1, 10], since its gates bear numbers below "
        "4,096, and on the printed ranges by the blocks for 1/x and √x alone; with m + 1 heads "
        "for each of these",
        corrected=bool(calculator.metrics["within_root_m"] and alone and small),
    )


# Algorithms: 13 layers and one head suffice


def on_one_head(works: bool, one_head: Record, program: str) -> Outcome:
    """Check that 13 layers with one head run a program as the exact functions do."""
    row = pd.DataFrame(one_head.curves).set_index("program").loc[program]
    small = row["layers"] <= 13 and row["heads"] == 1 and one_head.metrics["width_is_linear"]
    right = works and row["same_branches"] and row["error"] < 1e-4
    evidence = f"{row['heads']} head, error {row['error']:.0e} after {row['passes']} passes"
    return Outcome(True if small and right else None, evidence)


@claim("LT-12-start", section="Algorithm 4")
def newton_starts_from_the_transpose(newton: Record, errata: Record) -> Outcome:
    """Invert random matrices by Newton's iteration from both starts."""
    found = errata.metrics["E8"]
    return Outcome(
        found["printed"] == found["of"],
        f"{found['printed']} of {found['of']} matrices as printed, {found['corrected']} corrected",
        correction="from ε A^T",
        corrected=newton.metrics["largest_residual"]["transposed, machine"] < 1e-3,
    )


@claim("LT-12", section="Lemma 12")
def a_loop_inverts_matrices(newton: Record, one_head: Record) -> Outcome:
    """Run Newton's iteration on the machine."""
    residual = newton.metrics["largest_residual"]["transposed, machine"]
    return on_one_head(residual < 1e-3, one_head, "inverse")


@claim("LT-13", section="Lemma 13")
def a_loop_finds_eigenvectors(power: Record, one_head: Record) -> Outcome:
    """Run power iteration on the machine."""
    return on_one_head(power.metrics["cosine"] >= 0.999, one_head, "power iteration")


@claim("LT-15", section="Lemma 15")
def a_loop_descends_gradients(
    back_propagation: Record, regression: Record, one_head: Record
) -> Outcome:
    """Train a network and a linear regression on the machine, beside torch's autograd."""
    studies = (back_propagation, regression)
    error = max(study.metrics["largest_difference"] for study in studies)
    return on_one_head(error < 1e-2, one_head, "back-propagation")
