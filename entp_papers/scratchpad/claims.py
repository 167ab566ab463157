"""Statements of appendices C.2 and C.3, one function each; parameters are the deciding studies."""

import pandas as pd

from entp_lab.store import Record
from entp_lab.theory import Outcome, claim
from entp_papers.scratchpad.exact import of_decoders

SAME_LOSS = 1e-10  # nats, in double precision
SAME_GRADIENT = 1e-9
SAME_LOGITS = 1e-9
OTHER_LOSS = 1e-5  # nats: above it losses differ by more than rounding
OTHER_LOGITS = 1e-3


def decoder_differences(equivalence: Record) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a decoder's differences with all ingredients, and without one of them."""
    return of_decoders(equivalence.curves)


def one_training(rows: pd.DataFrame) -> Outcome:
    """Check that chunks and duplicated states have the same loss and the same gradient."""
    loss = rows["loss"].max()
    gradient = rows["gradient"].max()
    holds = loss < SAME_LOSS and gradient < SAME_GRADIENT  # NaN, of no rows, is not below
    return Outcome(holds, f"losses differ by {loss:.0e} nats, gradients by {gradient:.0e}")


@claim("IS-training", section="Appendix C.2")
def chunks_and_duplicates_are_one_training(equivalence: Record) -> Outcome:
    """Compare both ways of training with learned positions."""
    whole, _ = decoder_differences(equivalence)
    return one_training(whole[whole["scheme"] == "learned"])


@claim("IS-schemes", section="Appendix C.2")
def relative_positions_change_nothing(equivalence: Record) -> Outcome:
    """Compare both ways of training with rotary positions and ALiBi."""
    whole, _ = decoder_differences(equivalence)
    return one_training(whole[whole["scheme"].isin(["rotary", "alibi"])])


@claim("IS-ingredients", section="Appendix C.2")
def each_ingredient_is_needed(equivalence: Record) -> Outcome:
    """Leave out group mask, re-indexed positions or masked targets."""
    _, missing = decoder_differences(equivalence)
    least = missing["loss"].min()
    return Outcome(least > OTHER_LOSS, f"losses differ by {least:.0e} nats or more")


@claim("IS-ordinary", section="Appendix C.2")
def ordinary_texts_keep_their_logits(mixed: Record) -> Outcome:
    """Read ordinary texts alone, and in a batch with duplicated states."""
    error = mixed.metrics["largest_difference"]
    return Outcome(error < SAME_LOGITS, f"logits differ by {error:.0e}")


def same_texts(writing: Record, reuse: Record, *ways: str) -> Outcome:
    """Check that ways of reading give the definition's texts and logits."""
    drawn = pd.DataFrame(writing.curves).query("way in @ways")
    given = [reuse.metrics["ways"][f"inductive decoder, {way}"]["largest_error"] for way in ways]
    texts = drawn["differing_texts"].sum()
    error = max(drawn["largest_difference"].max(), *given)
    return Outcome(
        texts == 0 and error < SAME_LOGITS, f"{texts} texts differ, logits by {error:.0e}"
    )


@claim("IS-writing", section="Appendix C.2")
def masking_writes_what_trimming_writes(writing: Record, reuse: Record) -> Outcome:
    """Write the same texts with the whole text masked as with the trimmed one."""
    return same_texts(writing, reuse, "masked")


@claim("IS-caches", section="Appendix C.2")
def two_caches_are_exact(writing: Record, reuse: Record) -> Outcome:
    """Write the same texts with either of the paper's two caches."""
    return same_texts(writing, reuse, "recomputed", "doubled")


@claim("IS-relative", section="Appendix C.3")
def relative_positions_write_inductively(writing: Record) -> Outcome:
    """Write inductive scratchpads with rotary positions and ALiBi, in every exact way."""
    rows = pd.DataFrame(writing.curves).query("scheme in ('rotary', 'alibi') and way != 'naive'")
    texts = rows["differing_texts"].sum()
    error = rows["largest_difference"].max()
    return Outcome(texts == 0 and error < SAME_LOGITS, f"{texts} texts differ")


@claim("IS-naive", section="Appendix C.2")
def the_naive_cache_is_wrong(reuse: Record) -> Outcome:
    """Keep keys and values as they were, and measure how far logits move."""
    error = reuse.metrics["ways"]["inductive decoder, naive"]["largest_error"]
    return Outcome(error > OTHER_LOGITS, f"logits differ by {error:.1f}")


@claim("IS-question", section="Appendix C.3")
def the_question_moves_away(relative: Record) -> Outcome:
    """Measure the distance between question and state, state by state."""
    farthest = max(relative.curves["question_distance"])
    return Outcome(relative.metrics["grows"], f"up to {farthest} tokens")


@claim("IS-windows", section="Appendix C.3")
def layers_reach_beyond_a_window(relative: Record) -> Outcome:
    """Follow a window of D tokens through L layers."""
    return Outcome(
        relative.metrics["reach_is_window_times_layers"],
        f"up to {max(relative.curves['reach'])} tokens back",
    )


@claim("IS-distance", section="Appendix C.3")
def distances_let_older_states_in(relative: Record) -> Outcome:
    """Count the tokens of an older state that a state's first token sees by distance alone."""
    found = relative.metrics
    holds = found["leaks_all_but_one"] and found["inductive_leaks"] == 0
    return Outcome(holds, f"{found['inductive_leaks']} tokens with the inductive mask")
