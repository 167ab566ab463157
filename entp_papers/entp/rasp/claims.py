"""Statements on Count3's programs and constructed weights, a function each; parameters are the
studies they rest on.
"""

import math

import pandas as pd

from entp_lab.store import Record
from entp_lab.theory import Outcome, claim


def always_right(programs: Record, name: str) -> bool:
    """Return whether a program gave the right answer on every sequence that was tried."""
    return programs.metrics["right"][name] == 1.0


def steps_of_blocks(counters: Record) -> pd.DataFrame:
    """Return the steps of counting in blocks by length, with n² (Conjecture 6.1) and the bound."""
    table = pd.DataFrame(counters.curves).set_index("length")
    needed = 2 * table.index**1.5 + 2 * table.index
    return table.assign(**{"n²": table.index**2, "2n^1.5 + 2n": needed.astype(int)})


@claim("6.1", section="Conjecture 6.1")
def counting_takes_square_time_or_linear_space(counters: Record) -> Outcome:
    """Refute the conjecture by an algorithm with √n counters that takes about 2 n^1.5 steps."""
    blocks = steps_of_blocks(counters)
    in_less = blocks["right"].all() and (blocks["steps"] <= blocks["2n^1.5 + 2n"]).all()
    return Outcome(False if in_less else None)


@claim("6.2", section="Lemma 6.2")
def decoders_need_linear_depth(counters: Record) -> Outcome:
    """Leave the lemma open: it is derived from the conjecture, and no run decides it."""
    return Outcome(None)


@claim("6.3-size", section="§6.3")
def decoders_grow_with_the_sequence(counters: Record) -> Outcome:
    """Leave this open, as the lemma that it follows from."""
    return Outcome(None)


@claim("6.2-close", section="§4, §6.2")
def decoders_cannot_come_close(counters: Record) -> Outcome:
    """Leave this open, as the lemma that it follows from."""
    return Outcome(None)


@claim("6.2-medium", section="Lemma 6.2, §6.3")
def a_medium_decoder_has_room(constructed_decoder: Record) -> Outcome:
    """Check that the constructed decoders err nowhere, in fp64 and in fp32."""
    sizes = pd.DataFrame(constructed_decoder.curves)
    wrong = sizes.loc[sizes["precision"] != "bf16", ["wrong", "hard_wrong"]]
    least = sizes[sizes["model"].str.startswith("least")].iloc[-1]
    enough = (
        f"{least['layers']} layers of width {least['width']} are enough at length {least['length']}"
    )
    return Outcome(wrong.eq(0).all(axis=None), remark=enough)


@claim("6.3", section="Lemma 6.3")
def an_encoder_of_constant_size_counts(below_length: Record, constructed: Record) -> Outcome:
    """Check that the encoder has one shape at every length and errs nowhere, on values below it."""
    small = pd.DataFrame(below_length.curves)
    constant = small[["layers", "heads", "width"]].nunique().eq(1).all()
    wrong = sum(constructed.metrics[kind]["wrong"] for kind in ("random", "hard", "generated"))
    remark = "without that, ours has 9 layers and two for every base-4 digit of the vocabulary"
    if wrong:
        remark += f", and was wrong {wrong} times"
    return Outcome(constant and small["wrong"].eq(0).all(), remark=remark)


@claim("6.4", section="Remark 6.4, Algorithm 6")
def a_chain_of_thought_counts(programs: Record) -> Outcome:
    """Compare Algorithm 6 with the definition, also in the 2n + 2 steps that are printed."""
    return Outcome(
        always_right(programs, "algorithm 6")
        and always_right(programs, "algorithm 6 in 2n + 2 steps")
    )


@claim("A.7", section="Appendix A.7")
def two_layers_take_a_remainder(programs: Record) -> Outcome:
    """Check that a mod b is right where M is n/ε."""
    wrong = [
        count for name, count in programs.metrics["mod_wrong"].items() if name.startswith("M = n/ε")
    ]
    return Outcome(
        not any(wrong), remark="M ≥ n/ε is enough; the printed bound is illegible in our text"
    )


@claim("E-2", section="Appendix E, Algorithm 2")
def algorithm_2_counts(programs: Record) -> Outcome:
    """Compare Algorithm 2 with the definition."""
    return Outcome(always_right(programs, "algorithm 2"))


@claim("E-3", section="Appendix E, Algorithm 3")
def algorithm_3_counts(programs: Record) -> Outcome:
    """Compare Algorithm 3 with the definition."""
    return Outcome(always_right(programs, "algorithm 3"))


@claim("F-4", section="Appendix F, Algorithm 4")
def algorithm_4_counts(programs: Record) -> Outcome:
    """Compare Algorithm 4 with the definition, for values below n."""
    reduced = always_right(programs, "algorithm 4, x mod n first")
    remark = "larger values are right once taken mod n" if reduced else ""
    return Outcome(always_right(programs, "algorithm 4, x < n"), remark=remark)


@claim("F-5", section="Appendix F, Algorithm 5")
def algorithm_5_matches_on_every_prefix(programs: Record) -> Outcome:
    """Compare Algorithm 5 with the definition, as printed and with all its attention causal."""
    return Outcome(
        always_right(programs, "algorithm 5, every prefix"),
        correction="all three attention calls causal; as printed two of them see the future",
        corrected=always_right(programs, "algorithm 5 with all calls causal, every prefix"),
    )


@claim("6.3-seeds", section="§6.3")
def so_many_prompts(counters: Record) -> Outcome:
    """Count the prompts of 16 symbols out of 64."""
    prompts = counters.metrics["seeds"]
    return Outcome(
        math.isclose(prompts, 1.16e77, rel_tol=0.01),
        correction="64^16 is 7.9·10^28; 1.16·10^77 is 16^64",
        corrected=math.isclose(prompts, 7.9e28, rel_tol=0.01)
        and math.isclose(16.0**64, 1.16e77, rel_tol=0.01),
    )


@claim("6.3-duplicates", section="§6.3")
def hardly_a_prompt_comes_twice(counters: Record) -> Outcome:
    """Compute the expected number of equal pairs among 1.28·10^7 random prompts."""
    drawn = 1.28e7
    pairs = drawn**2 / 2 / counters.metrics["seeds"]
    return Outcome(pairs < 1e-6, remark=f"pairs expected to be equal: {pairs:.0e}")
