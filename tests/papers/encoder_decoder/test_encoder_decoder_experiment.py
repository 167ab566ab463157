"""Verdicts on three objectives follow the paired scores."""

from made_up import record_of

from entp_lab import claims
from entp_papers.encoder_decoder.experiment import MEASURE_OBJECTIVES, plan_objectives


def test_where_nothing_is_learned_a_comparison_says_nothing():
    records = [
        record_of(
            run,
            next_token_loss=3.39,
            middle_loss=2.5,
            middle_loss_few=2.4,
            accuracy=0.03,
            unigram=3.4,
            candidate_loss=None,
        )
        for run in plan_objectives("quick", 5)
    ]
    judged = claims.judge(MEASURE_OBJECTIVES(records), only_measured=True)
    verdicts = judged.set_index("id")["verdict"]
    assert set(verdicts[["ED-next-token", "ED-classification"]]) == {"uninformative"}
