"""Plans of notebook 13's experiments, verdicts on their records, tables and pictures of them."""

from dataclasses import replace

import matplotlib.pyplot as plt
import pytest

from entp_lib.experiments import claims
from entp_lib.records.store import Record
from entp_lib.registry import STUDIES
from entp_papers.scratchpad import experiment, pictures
from entp_papers.scratchpad.exact import PAD
from entp_papers.scratchpad.experiment import (
    ARMS,
    SCRATCHPAD,
    beyond,
    by_size,
    measure,
    measure_training,
    plan_training,
)
from entp_papers.scratchpad.format import Example, duplicate_states


def made(runs):
    """Records of runs, computed in memory."""
    found = []
    for run in runs:
        metrics, curves = STUDIES.named(run.config.study)(**run.config.params)
        found.append(Record(run.config.experiment, 1, run.config, metrics, curves, {}, labels=run.labels))
    return found


@pytest.fixture(scope="module")
def studied():
    return made(SCRATCHPAD.plan("smoke", 0))


@pytest.fixture(scope="module")
def trained():
    return made(plan_training("smoke"))


def scored(seeds, answers, known=1.0):
    """Records of training as if made: ``answers`` has the score beyond the trained sizes, by arm, ``known`` at them."""
    records = []
    for run in plan_training("overnight", seeds):
        setting = run.config.params["setting"]
        sizes, longest = setting["test_sizes"], max(setting["train_sizes"])
        score = answers[run.labels["arm"]] + 0.001 * run.labels["seed"]
        right = [score if size > longest else known for size in sizes]
        curves = {"size": sizes, "answers_right": right, "texts_right": right, "state_error": [1 - x for x in right]}
        records.append(Record("scratchpad_training", 1, run.config, {}, curves, {}, labels=run.labels))
    return records


def test_every_claim_is_listed_and_every_statement_of_the_studies_verified(studied):
    checks = measure(studied)
    assert len(checks) == 9 and {c.verdict for c in checks} == {"verified"}
    stated = claims.reference_claims()
    stated = stated[stated["paper"] == "scratchpad"]
    assert set(stated["id"]) == {m.claim for m in [*checks, *measure_training(scored(1, dict.fromkeys(ARMS, 0.5)))]}
    assert set(stated["notebook"]) == {experiment.NOTEBOOK}
    assert measure(studied[:2]) == [] == measure_training([])


def all_alike(curves, metrics):
    curves["loss"] = [1e-6] * len(curves["loss"])


def one_ingredient_does_nothing(curves, metrics):
    kinds = zip(curves["architecture"], curves["without"], curves["scheme"], strict=True)
    chosen = next(i for i, kind in enumerate(kinds) if kind == ("decoder", "positions", "learned"))
    curves["loss"] = [0.0 if i == chosen else loss for i, loss in enumerate(curves["loss"])]


def naive_does_no_harm(curves, metrics):
    name = next(way for way in metrics["ways"] if way.endswith(", naive"))
    metrics["ways"] = {**metrics["ways"], name: {**metrics["ways"][name], "largest_error": 0.0}}


def one_text_differs(curves, metrics):
    curves["differing_texts"] = [int(way == "doubled") for way in curves["way"]]


@pytest.mark.parametrize(
    ("study", "change", "refuted"),
    [
        ("equivalence", all_alike, ["IS-training", "IS-schemes", "IS-ingredients"]),  # without a part it must differ
        ("equivalence", one_ingredient_does_nothing, ["IS-ingredients"]),
        ("reuse", naive_does_no_harm, ["IS-naive"]),
        ("writing", one_text_differs, ["IS-caches"]),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(studied, study, change, refuted):
    record = experiment.of_study(studied, study)
    curves, metrics = dict(record.curves), dict(record.metrics)
    change(curves, metrics)
    broken = [replace(r, curves=curves, metrics=metrics) if r is record else r for r in studied]
    assert [c.claim for c in measure(broken) if c.verdict == "refuted"] == refuted


def test_gaps_are_taken_beyond_the_trained_sizes():
    answers = {"inductive decoder": 0.9, "ordinary decoder": 0.4, "decoder without": 0.5, "inductive ENTP": 0.7}
    records = scored(5, answers)
    found = {m.claim: m for m in measure_training(records)}
    values = {claim: m.values for claim, m in found.items()}
    gaps = {"IS-parity": 0.5, "IS-shift": 0.5, "IS-soft": 0.5, "IS-entp": -0.2}
    assert values == {claim: pytest.approx([gap] * 5) for claim, gap in gaps.items()}
    assert len(found["IS-shift"].records) == 10
    table = by_size(records)
    assert set(table[table["beyond"] & (table["task"] == "parity")]["size"]) == {10, 12, 14, 16}
    assert beyond(table, "parity").groupby("arm")["texts_right"].mean()["ordinary decoder"] == pytest.approx(0.402)


def test_arms_at_the_ceiling_or_that_have_not_learned_the_trained_sizes_tell_nothing():
    """Where the ordinary scratchpad knows nothing of a random seed, the inductive one leads by no merit of its own."""
    half = dict.fromkeys(ARMS, 0.5)
    ceiling = {m.claim: m for m in measure_training(scored(5, dict.fromkeys(ARMS, 0.99)))}
    assert not ceiling["IS-parity"].informative
    assert not any(m.informative for m in measure_training(scored(5, half, known=0.4)))
    records = scored(5, half)
    for record in records:
        labels = record.labels
        if (labels["task"], labels["arm"], labels["seed"]) == ("shift_addition", "ordinary decoder", 3):
            record.curves["texts_right"] = [0.0] * len(record.curves["size"])
    found = {m.claim: m for m in measure_training(records)}
    assert "ordinary decoder on random seed 3" in found["IS-shift"].excluded_because
    assert found["IS-parity"].informative and found["IS-entp"].informative


def test_tables_of_the_studies(studied):
    table = experiment.cost_table(studied).set_index(["kind", "way"])["tokens_read"]
    assert table["decoder", "cached"] < table["inductive decoder", "recomputed"] < table["ENTP", "whole"]
    table = experiment.equivalence_table(studied)
    assert list(table.index) == [("decoder", "alibi"), ("decoder", "learned")]
    assert list(table["loss"].columns) == list(experiment.MISSING.values()) == list(table["gradient"].columns)
    assert (table["loss"]["nothing"] < 1e-10).all()
    assert (table.drop(columns="nothing", level=1).max(axis=1) > 1e-3).all()
    table = experiment.written_table(studied)
    assert table.loc["doubled", ("differing_texts", "alibi")] == 0
    assert table.loc["naive", ("largest_difference", "learned")] > table.loc["masked"].max()
    table = experiment.reuse_table(studied)
    assert table.loc["decoder", ("a state ends", "older")] == "2 of 2"
    assert table.loc["inductive decoder", ("a state ends", "present")] == "0 of 2"
    assert table.loc["inductive decoder", ("a token is added", "older")] == ""
    assert table.loc["ENTP", ("a token is added", "memory")] == "1 of 2"
    with pytest.raises(KeyError, match="training"):
        experiment.of_study(studied, "training")


def test_tables_of_trained_models(trained):
    table = experiment.trained_ways(trained)
    assert table.loc["parity", "differing_texts"] == 0 and table.loc["parity", "texts"] == 5
    assert table.loc["parity", "recomputed"] < table.loc["parity", "doubled"] < table.loc["parity", "trimmed"]
    table = experiment.errors_by_state(trained)
    inductive = table[table["arm"] == "inductive decoder"]
    assert list(inductive["state"]) == [1, 2, 3, 4, 5] and list(inductive["beyond"]) == [False] * 3 + [True] * 2
    assert table["error"].between(0, 1).all() and "decoder without" not in set(table["arm"])


def test_a_row_is_drawn_with_what_it_sees_its_tokens_positions_and_targets():
    """a : b # b # c # c # d, groups 0 0 1 1 2 2 2 2 3 3 3."""
    row = duplicate_states(PAD, Example((3,), ((4,), (5,), (6,))))
    seen_TT = pictures.seen_by(row)
    assert seen_TT[10].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2]
    assert seen_TT[4].tolist() == [1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    figure, ax = plt.subplots()
    pictures.draw_row(ax, row, (":", "#", ".", "a", "b", "c", "d"))
    labels = ax.get_xticklabels()
    assert [label.get_text() for label in labels[:5]] == ["a\n0", ":\n1", "b\n2", "#\n3", "b\n2"]
    assert [label.get_color() == pictures.COUNTED for label in labels] == list(row.counted[:-1])
    plt.close(figure)


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_a_window_leaks_what_the_paper_says_and_groups_nothing(tokens):
    one = pictures.reach_by_window(tokens, 4, 1)
    first = one[3 * tokens]  # the first token of the last state
    assert (first[tokens : 2 * tokens] == 2).sum() == tokens - 1 and first[tokens] == 0
    assert one[3 * tokens - 1][tokens] == 1  # the last token of a state sees the first one of the state before
    assert (pictures.reach_by_window(tokens, 4, 3) == 2).sum() > (one == 2).sum()
    assert not any((pictures.reach_by_groups(tokens, 4, layers) == 2).any() for layers in (1, 3))


def test_every_arm_has_a_look_of_its_own():
    lines = {(look.colour, look.dashes) for arm, look in pictures.LOOKS.items() if arm in ARMS}
    assert len(lines) == len(ARMS)
