"""What notebook 14's experiments plan, and how their records are judged."""

from dataclasses import replace

import pytest

from entp_lib.collection import claims
from entp_lib.papers.encoder_decoder.experiment import (
    ARMS,
    ENCODER_DECODER,
    OBJECTIVES,
    STUDIES,
    TIERS,
    frame,
    long,
    measure,
    measure_objectives,
    of_study,
    plan,
    plan_objectives,
    table,
)
from entp_lib.papers.encoder_decoder.objectives import Setting
from entp_lib.runs.records import Record
from entp_lib.runs.studies import STUDIES as NAMED
from entp_lib.runs.studies import study_named
from entp_lib.strict import from_dict


@pytest.fixture(scope="module")
def studied():
    """The exact studies' records at smoke, made in memory."""
    found = []
    for run in plan("smoke"):
        metrics, curves = study_named(run.config.study)(**run.config.params)
        found.append(Record("encoder_decoder", 1, run.config, metrics, curves, {}, labels=run.labels))
    return found


SCORES = dict(next_token_loss=2.5, middle_loss=2.5, middle_loss_few=2.4, accuracy=0.2, fresh_accuracy=0.04, unigram=3.4)


def trained(seeds, changes, candidate_loss=1.0):
    """Records of training as if made, with other scores by arm."""
    records = []
    for run in plan_objectives("quick", seeds):
        noise = 0.001 * run.labels["seed"] * (1 + (run.labels["arm"] == "masked"))
        scores = {**SCORES, **changes.get(run.labels["arm"], {})}
        metrics = {name: value + noise for name, value in scores.items()}
        metrics["candidate_loss"] = candidate_loss if run.labels["arm"] == "causal" else None
        curves = {"prefix": [1, 2], "loss_by_prefix": [3.0, 2.0]}
        records.append(Record("objectives", 1, run.config, metrics, curves, {}, labels=run.labels))
    return records


def test_every_claim_of_the_studies_holds_or_is_corrected(studied):
    found = {check.claim: check.verdict for check in measure(studied)}
    wrong = {"ED-all-tokens", "ED-past", "ED-cache", "ED-encoder-time", "ED-decoder-time"}
    corrected = {claim for claim, verdict in found.items() if verdict == "verified with correction"}
    assert corrected == wrong
    assert {verdict for claim, verdict in found.items() if claim not in wrong} == {"verified"} and len(found) == 12


@pytest.mark.parametrize(
    ("study", "change", "claim", "verdict"),
    [
        ("parity", dict(largest_difference=1e-3), "ED-layers", "refuted"),
        ("masking", dict(largest_sigma=5.0), "ED-mlm", "refuted"),
        ("masking", dict(special_selected=1), "ED-mlm", "refuted"),
        ("losses", dict(largest=1e-3), "ED-causal-loss", "refuted"),
        ("bugs", dict(influence=dict(corrected=[[1.0] * 3] * 3, causal=[[1.0] * 3] * 3)), "ED-triangle", "refuted"),
        ("bugs", dict(influence=dict(corrected=[[1, 0], [1, 1]], causal=[[1, 0], [1, 1]])), "ED-triangle", "refuted"),
    ],
)
def test_a_study_that_fails_changes_its_verdict(studied, study, change, claim, verdict):
    broken = [replace(r, metrics={**r.metrics, **change}) if r is of_study(studied, study) else r for r in studied]
    assert {check.claim: check.verdict for check in measure(broken)}[claim] == verdict


@pytest.mark.parametrize(
    ("study", "curve", "rows", "value", "claim"),
    [
        ("sampling", "right", 1, False, "ED-sampling"),
        ("caches", "apart", 99, 0.0, "ED-cache-decoder"),
        ("bugs", "told_apart", dict(bug="B6"), False, "ED-cache"),
    ],
)
def test_one_row_that_fails_refutes_its_statement(studied, study, curve, rows, value, claim):
    """A number of ``rows``: so many from the first on; else the first with these entries."""
    record = of_study(studied, study)
    values = list(record.curves[curve])
    if isinstance(rows, dict):
        ((name, wanted),) = rows.items()
        values[record.curves[name].index(wanted)] = value
    else:
        values[:rows] = [value] * min(rows, len(values))
    broken = [replace(r, curves={**r.curves, curve: values}) if r is record else r for r in studied]
    before, after = ({c.claim: c.verdict for c in measure(rows)} for rows in (studied, broken))
    assert before.pop(claim) != after.pop(claim) == "refuted" and before == after


def test_a_correct_bug_refutes_and_half_of_the_records_say_nothing(studied):
    rows = of_study(studied, "bugs")
    curves = dict(rows.curves, told_apart=[False] * len(rows.curves["told_apart"]))
    found = {c.claim: c.verdict for c in measure([replace(r, curves=curves) if r is rows else r for r in studied])}
    assert found["ED-all-tokens"] == "verified"  # what is printed would then be right
    assert measure(studied[:3]) == [] and measure_objectives([]) == []
    with pytest.raises(KeyError, match="no record of the study 'bags'"):
        frame(studied, "bags")


def test_verdicts_follow_the_paired_scores():
    better = {"masked": dict(next_token_loss=3.0, middle_loss=2.0, accuracy=0.3, middle_loss_few=1.5)}
    judged = claims.judge(measure_objectives(trained(5, better)), only_measured=True).set_index("id")["verdict"]
    assert judged["ED-next-token"] == judged["ED-both-sides"] == judged["ED-classification"] == "same direction"
    assert judged["ED-bayes"] == "decoder ahead" and judged["ED-entp-masked"] == "ENTP ahead"
    assert judged["ED-entp-next"] == "equal within the margin"
    worse = {"masked": dict(next_token_loss=2.0, accuracy=0.1)}
    judged = claims.judge(measure_objectives(trained(5, worse)), only_measured=True).set_index("id")["verdict"]
    assert judged["ED-next-token"] == judged["ED-classification"] == "not reproduced"
    few = claims.judge(measure_objectives(trained(4, better)), only_measured=True).set_index("id")["verdict"]
    assert few["ED-next-token"] == "inconclusive"


def test_models_that_learned_nothing_decide_nothing():
    nothing = {arm: dict(next_token_loss=3.39, accuracy=0.03) for arm in ARMS}
    judged = claims.judge(measure_objectives(trained(5, nothing)), only_measured=True).set_index("id")["verdict"]
    assert judged["ED-next-token"] == judged["ED-classification"] == "uninformative"


def test_arms_are_paired_and_differ_in_nothing_else():
    runs = plan_objectives("quick")
    assert len(runs) == 5 * len(ARMS) and plan_objectives("gpu") == []
    for run in runs:
        setting = from_dict(Setting, run.config.params["setting"])
        assert setting.objective == run.labels["objective"]
        assert run.config.params["model_seed"] == run.config.params["data_seed"] == run.labels["seed"]
    texts = {str({**r.config.params["setting"]["text"], "prefixes": 0}) for r in runs}
    assert len(texts) == 1 and len({str(r.config.params["train_config"]) for r in runs}) == 1


def test_equal_compute_is_equal():
    t = TIERS["quick"]
    mean = (t["text"]["context"] + 1) / 2
    assert t["prefixes"]["few"] * mean == pytest.approx(t["text"]["context"], rel=0.05)


def test_tables_have_a_row_per_run_and_point():
    records = trained(2, {})
    assert len(table(records)) == 2 * len(ARMS) and {"arm", "seed", "accuracy"} <= set(table(records))
    assert len(long(records, ["prefix", "loss_by_prefix"])) == 4 * len(ARMS)


def test_names_are_registered():
    assert {f"encoder_decoder_{name}" for name in STUDIES["quick"]} | {"encoder_decoder_objective"} <= set(NAMED)
    assert STUDIES["quick"].keys() == STUDIES["smoke"].keys()
    assert ENCODER_DECODER.notebook == OBJECTIVES.notebook == "14_encoder_vs_decoder"
