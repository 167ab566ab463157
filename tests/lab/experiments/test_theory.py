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


METRICS = {"first": {"error": 1e-6}, "second": {"even": True}}


def records(studies):
    """Records of studies, which hold what is claimed, the second with a correction."""
    found = []
    for name in studies:
        config = StudyConfig("made", "smoke", f"made_{name}", {})
        found.append(Record("made", 1, config, METRICS[name], {}, {}))
    return found


@pytest.mark.parametrize(
    ("studies", "verdicts"),
    [
        (["first", "second"], {"T-1": "verified", "T-2": "verified with correction"}),
        (["first"], {"T-1": "verified"}),
        ([], {}),
    ],
)
def test_verdicts_follow_from_the_records_of_the_studies_named(studies, verdicts):
    checks = checks_of(__name__)(records(studies))
    assert {check.claim: check.verdict for check in checks} == verdicts


def test_a_mistake_in_a_claim_keeps_its_traceback():
    @claim("T-3")
    def wrong(first: Record) -> Outcome:
        return Outcome(first.metrics["erorr"] < ERROR)

    with pytest.raises(KeyError, match="erorr"):
        wrong.check({"first": records(["first"])[0]})
