"""The shares of the last token, of models whose rule is known."""

import pytest
import torch
from torch import nn

from entp_lib.records.store import Record
from entp_lib.tasks.base import generator_for
from entp_lib.validation import ConfigError
from entp_papers.compact import abstraction_studies, last_token, last_token_studies
from entp_papers.compact.last_token_studies import last_token_study, repeating_share, split
from entp_papers.compact.templates import Templates

SOURCE = Templates()
TINY = dict(task=dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3), architecture="decoder",
            n_layers=1, n_heads=2, width=16, steps=6, batch_size=8, evaluations=2, sequences=16)  # fmt: skip


class Rule(nn.Module):
    """Copies the token before where the first instantiation does so, else names the ``other`` variables in turn."""

    def __init__(self, always: bool = False):
        super().__init__()
        self.always = always

    def forward(self, inputs_BT, wanted_BT, _):
        length, last = SOURCE.template_length, SOURCE.last_prefix
        logits_BV = torch.zeros(len(inputs_BT), SOURCE.vocab_size)
        for row, text in enumerate(inputs_BT.tolist()):
            here = text[last - length + 1 : last]
            repeats = text[length - 1] == text[length - 2]
            others = sorted(set(here) - {here[-1]})
            chosen = here[-1] if repeats or self.always else others[row % len(others)]
            logits_BV[row, chosen] = 1.0
        return logits_BV


def test_telling_repeats_and_guessing_gets_what_the_rule_says():
    found = split(Rule(), SOURCE, 3000, generator_for("cpu", "test"))
    assert found["repeating"] == 1 and found["copied"] == 0
    assert found["others"] == pytest.approx(0.5, abs=0.05)
    share = repeating_share(SOURCE)
    assert found["last"] == pytest.approx(share + (1 - share) / 2, abs=0.04)


def test_a_model_that_always_copies_is_right_where_the_token_repeats():
    found = split(Rule(always=True), SOURCE, 500, generator_for("cpu", "test"))
    assert (found["repeating"], found["others"], found["copied"]) == (1, 0, 1)
    assert found["last"] == pytest.approx(repeating_share(SOURCE), abs=0.07)


def test_it_trains_as_the_study_of_abstraction_does(monkeypatch):
    weights = []
    monkeypatch.setattr(abstraction_studies, "final", lambda model, *_: weights.append(model.state_dict()) or {})
    abstraction_studies.abstraction_study(**TINY)
    nothing = dict.fromkeys(last_token_studies.PARTS, 0.0)
    monkeypatch.setattr(last_token_studies, "split", lambda m, *_: weights.append(m.state_dict()) or nothing)
    last_token_study(**TINY)
    assert all(torch.equal(weights[0][name], weights[-1][name]) for name in weights[0])


def test_curves_and_metrics_agree():
    metrics, curves = last_token_study(**TINY)
    assert curves["step"] == [3, 6] and metrics["last"] == curves["last"][-1]
    assert 0 < metrics["repeats"] < 1 and metrics["rule"] == 1  # of two variables the other one is known
    with pytest.raises(ConfigError, match="evaluations = 0"):
        last_token_study(**{**TINY, "evaluations": 0})


def test_only_stretches_between_the_bounds_count():
    (run,) = last_token.LAST_TOKEN.plan("smoke")
    curves = {"step": [1, 2, 3], "last": [0.3, 0.6, 0.7], "repeating": [0.3, 0.9, 1.0], "others": [0.3, 0.4, 0.6],
              "copied": [0.3, 0.1, 0.0]}  # fmt: skip
    records = last_token.LAST_TOKEN.labelled(
        [Record("compact_last_token", 1, run.config, {"rule": 0.65}, curves, {})], [run]
    )
    row = last_token.stretches(records).iloc[0]
    assert row["evaluations"] == 2
    assert row[["last", "rule", "repeating", "others", "copied"]].tolist() == pytest.approx(
        [0.65, 0.65, 0.95, 0.5, 0.05]
    )
