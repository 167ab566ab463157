"""Claims of Looped Transformers (Giannou et al. 2023), a function each; parameters are the studies it rests on."""

from entp_lab.store import Record
from entp_lab.theory import Outcome, claim


@claim("LT-2", section="Lemma 2")
def pointers_copy_within_the_bound(copying: Record, off_target: Record) -> Outcome:
    """Read a vector from the token that a pointer names, by one layer, at the temperature that the lemma gives."""
    error = copying.metrics["largest_error"]
    return Outcome(error < 1e-9 and off_target.metrics["within_bound"], f"largest error {error:.1e}")


@claim("LT-T2", section="Theorem 2")
def fleq_programs_run(fleq: Record) -> Outcome:
    """Run FLEQ programs on 13 layers with 4 heads as an interpreter runs them."""
    found = fleq.metrics
    small = found["size"]["layers"] <= 13 and found["size"]["heads"] <= 4
    right = found["wrong_branches"] == 0 and found["largest_error"] < 1e-4
    return Outcome(right and small, f"{found['wrong_branches']} wrong branches, error {found['largest_error']:.1e}")


@claim("LT-C1", section="Corollary 1")
def calls_and_branches_come_apart(fleq: Record) -> Outcome:
    """Reach the same memory where every command is a plain call or a plain branch."""
    return Outcome(fleq.metrics["apart"] < 1e-4, f"the two forms differ by {fleq.metrics['apart']:.1e}")


@claim("LT-5.2", section="§5.2")
def the_scratchpad_alone_looks_at_all(restricted: Record) -> Outcome:
    """Run programs on a machine where only the scratchpad's tokens attend to all others."""
    return Outcome(restricted.metrics["wrong"] == 0, f"{restricted.metrics['wrong']} programs wrong")


@claim("LT-8-30", section="§8")
def one_layer_transposes(transpose: Record) -> Outcome:
    """Transpose a vectorised matrix, 30 × 30 at the tier quick, by one layer with one head."""
    error = transpose.metrics["largest_error"]
    return Outcome(error < 1e-8, f"largest error {error:.1e}")
