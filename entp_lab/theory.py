"""Claims of theory, a function each: what was studied, and whether the paper's statement held.

    @claim("LT-8-30", section="§8")
    def one_layer_transposes(transpose):
        error = transpose.metrics["largest_error"]
        return Outcome(error < 1e-8, f"largest error {error:.1e}")

Parameters name the studies that a claim rests on; each argument is that study's record. ``checks_of`` makes the
functions of a module an experiment's ``measure``, so that a verdict, its test and what a notebook shows come from one
function.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from entp_lab.measurements import Check, checked
from entp_lab.store import Record, Records
from entp_lab.studies import by_study


@dataclass(frozen=True)
class Outcome:
    """What was found about a claim.

    ``holds``: whether the statement holds as printed, in everything that was tried; None if that could not be decided.
    ``evidence``: what was seen, for the notebook. ``correction``: the words in which it holds, if it is ``corrected``.
    ``remark``: what the ledger adds to the statement.
    """

    holds: bool | None
    evidence: str = ""
    correction: str = ""
    corrected: bool = True
    remark: str = ""


@dataclass(frozen=True)
class Claim:
    """A function that decides a claim from the records of studies, which its parameters name."""

    id: str
    decide: Callable[..., Outcome]
    section: str
    studies: tuple[str, ...]

    def check(self, found: dict[str, Record]) -> Check:
        """Return the claim's ``Check`` for the ledger, from records by the name of their study."""
        used = [found[study] for study in self.studies]
        outcome = self.decide(*used)
        return checked(
            self.id,
            outcome.holds,
            used,
            corrected=outcome.corrected if outcome.correction else None,
            correction=outcome.correction,
            remark=outcome.remark,
        )


def claim(id: str, section: str = "") -> Callable[[Callable[..., Outcome]], Claim]:
    """Return a decorator for the function that decides a claim; its parameters are names of studies."""
    return lambda decide: Claim(id, decide, section, tuple(inspect.signature(decide).parameters))


def checks_of(module: str) -> Callable[[Records], list[Check]]:
    """Return a ``measure`` for experiments: checks of the module's claims, in its order, whose studies have records."""

    def measure(records: Records) -> list[Check]:
        found = by_study(records)
        return [
            claim.check(found)
            for claim in list(vars(importlib.import_module(module)).values())
            if isinstance(claim, Claim) and found.keys() >= set(claim.studies)
        ]

    return measure


def show_claim(claim: Claim, records: Records) -> None:
    """Show in a notebook the function that decides a claim, and its outcome on these records."""
    from IPython.display import Code, Markdown, display

    found = by_study(records)
    check = claim.check(found)
    outcome = claim.decide(*(found[study] for study in claim.studies))
    display(
        Code(inspect.getsource(claim.decide), language="python"),
        Markdown(
            f"**{check.verdict}**. {outcome.correction or outcome.remark} {outcome.evidence}".strip()
        ),
    )
