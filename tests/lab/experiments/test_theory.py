"""A claim of theory is one function: its parameters name its studies, and its outcome decides the
verdict.
"""

import pytest

from entp_lab.configs import StudyConfig
from entp_lab.store import Record
from entp_lab.theory import Outcome, checks_of, claim

ERROR = 1e-3


@claim("T-1", section="Lemma 1")
def small_errors(first: Record) -> Outcome:
    """Keep the error below the bound."""
    return Outcome(first.metrics["error"] < ERROR, f"error {first.metrics['error']}")


@claim("T-2")
def holds_in_other_words(first: Record, second: Record) -> Outcome:
    return Outcome(False, correction="for even n", corrected=second.metrics["even"])


def records(error=1e-6, even=True, studies=("first", "second")):
    metrics = {"first": {"error": error}, "second": {"even": even}}
    configs = {name: StudyConfig("made", "smoke", f"made_{name}", {}) for name in studies}
    return [Record("made", 1, config, metrics[name], {}, {}) for name, config in configs.items()]


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        ({}, {"T-1": "verified", "T-2": "verified with correction"}),
        ({"error": 1.0}, {"T-1": "refuted", "T-2": "verified with correction"}),
        ({"even": False}, {"T-1": "verified", "T-2": "refuted"}),
        ({"studies": ["first"]}, {"T-1": "verified"}),
        ({"studies": []}, {}),
    ],
)
def test_verdicts_follow_from_the_records_of_the_studies_named(given, verdicts):
    checks = checks_of(__name__)(records(**given))
    assert {check.claim: check.verdict for check in checks} == verdicts


def test_a_mistake_in_a_claim_keeps_its_traceback():
    @claim("T-3")
    def wrong(first: Record) -> Outcome:
        return Outcome(first.metrics["erorr"] < ERROR)

    with pytest.raises(KeyError, match="erorr"):
        wrong.check({"first": records()[0]})
