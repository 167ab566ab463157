"""Decoders with ENTP's multiply-adds, the budget that counts besides equal steps and equal token-forwards.

By its definition ENTP sends every token of every prefix through the whole stack. This library computes less: the
first layer's projections once for all prefixes, the last layer at the end of each prefix alone. A decoder with ENTP's
token-forwards therefore has more multiply-adds than ENTP (and takes more processor time), and one with its steps has
fewer. In between lies the decoder here, with as many multiply-adds, on a schedule of its own. It is compared with the
ENTP of the experiment that asks at equal steps, by the same rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from entp_lib.experiments.budgets import (
    EQUAL_FORWARDS,
    EQUAL_OPERATIONS,
    equal_operations,
    on_budget,
    training_operations,
)
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import interval_text, select
from entp_lib.experiments.measurements import Measurement
from entp_lib.experiments.plans import PlannedRun, by_seed
from entp_lib.records.store import Record
from entp_papers.entp.count3 import COUNT3, COUNT3_UNSEEN
from entp_papers.entp.full_layers import FULL_LAYER_RUNS, SAME_FORWARDS, SAME_STEPS, arm_name
from entp_papers.entp.in_context.experiment import IN_CONTEXT
from entp_papers.entp.language.experiment import OPENWEBTEXT
from entp_papers.entp.language.tables import COUNTS, TABLE_8
from entp_papers.entp.match3 import MATCH3

BUDGETS = ("steps", "multiply-adds", "token-forwards")


@dataclass(frozen=True)
class Comparison:
    """An experiment's comparison on another budget: its ENTP and the decoders that it is compared with, by labels.

    ``decoder``: labels of the decoder at equal steps, which the experiment's ``measure`` finds it by; ``forwards``: of
    that at equal token-forwards. ``asked``: for each claim at equal steps the question at equal multiply-adds, and what
    both measure. ``others``: labels of further runs that ``measure`` needs. ``trained``: of the decoder whose task the
    one here has, where that is not the one at equal steps.
    """

    name: str
    source: Experiment
    entp: Mapping[str, Any]
    decoder: Mapping[str, Any]
    forwards: Mapping[str, Any]
    asked: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    others: Mapping[str, Any] | None = None
    trained: Mapping[str, Any] | None = None

    def runs(self, experiment: str, tier: str, seeds: int) -> list[PlannedRun]:
        """Decoders of as many multiply-adds, each before the ENTP run that it is compared with, as that was planned."""
        found, planned = [], self.source.plan(tier, seeds)
        for run in planned:
            known = PlannedRun(run.config, {**run.labels, "comparison": self.name})
            if select([run], **self.entp):
                found += [self.longer(experiment, run, planned), known]
            elif self.others is not None and select([run], **self.others):
                found.append(known)
        return found

    def longer(self, experiment: str, entp: PlannedRun, planned: Sequence[PlannedRun]) -> PlannedRun:
        """The decoder of ENTP's seed, on ENTP's schedule stretched to its multiply-adds."""
        other = select(planned, **(self.trained or self.decoder), seed=entp.labels["seed"])[0]
        base = replace(other.config, experiment=experiment, train=entp.config.train)
        labels = {**other.labels, "arm": EQUAL_OPERATIONS, "comparison": self.name}
        return PlannedRun(on_budget(equal_operations, entp.config, base), labels)

    def against(self, decoders: Sequence[Record], records: Sequence[Record]) -> dict[str, Measurement]:
        """Measurements of the experiment's ENTP, by claim, with ``decoders`` in place of that at equal steps."""
        of_steps = [replace(r, labels={**r.labels, **self.decoder}) for r in decoders]
        others = [r for labels in (self.entp, self.others) if labels for r in select(records, **labels)]
        return {m.claim: m for m in self.source.measure([*of_steps, *others])}

    def measured(self, records: Sequence[Record]) -> list[Measurement]:
        """The questions at equal multiply-adds."""
        mine = select(records, comparison=self.name)
        found = self.against(select(mine, arm=EQUAL_OPERATIONS), mine) if mine and self.asked else {}
        return [replace(found[claim], claim=asked) for claim, (asked, _) in self.asked.items() if claim in found]

    def budgets(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """A row for each measure and budget at which there are runs: what the decoder spends, ENTP's lead.

        Runs of another tier than the decoders with ENTP's multiply-adds, or changed ones, are no part of it.
        """
        mine, rows = select(records, comparison=self.name), []
        if not mine:
            return []
        own = [r for r in records if r.experiment == self.source.name and r.config.tier == mine[0].config.tier]
        own = [r for r in own if not {"changed", "comparison"} & set(r.labels)]
        arms = select(own, **self.decoder), select(mine, arm=EQUAL_OPERATIONS), select(own, **self.forwards)
        found = [self.against(decoders, mine) if decoders else {} for decoders in arms]
        entp = select(mine, **self.entp)
        for claim, (_, measure) in self.asked.items():
            for budget, decoders, measured in zip(BUDGETS, arms, found, strict=True):
                if measured:
                    spent = (costs(decoders[0]) / costs(entp[0])).round(2)
                    about = {"task": self.name, "measure": measure, "equal": budget}
                    rows.append({**about, **spent, "ENTP's lead": interval_text(measured[claim].values, "+")})
        return rows


def costs(record: Record) -> pd.Series:
    """Cost of a run's training: steps, multiply-adds as computed here, and token-forwards."""
    found = {"steps": record.config.train.steps, "multiply-adds": training_operations(record.config)}
    return pd.Series({**found, "token-forwards": record.provenance["token_forwards"]}, dtype=float)


def budgets(experiment: Experiment, records: Sequence[Record]) -> pd.DataFrame:
    """ENTP's lead at each budget of the decoder: what that spends, in ENTP's, and the lead with its interval.

    ``records``: labelled, the experiment's own and those of the experiments that it compares them with. Empty where no
    decoder with ENTP's multiply-adds has run.
    """
    rows = [row for c in COMPARISONS[experiment.name] for row in c.budgets(records)]
    return pd.DataFrame(rows).set_index(["task", "measure", "equal"]) if rows else pd.DataFrame()


def experiment_of(name: str, title: str, notebook: str) -> Experiment:
    """The experiment of a notebook's comparisons."""
    comparisons = COMPARISONS[name]

    def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
        if tier not in ("smoke", "overnight"):  # where a decoder has ENTP's token-forwards, too
            return []
        return by_seed([run for c in comparisons for run in c.runs(name, tier, seeds)])

    def measure(records: Sequence[Record]) -> list[Measurement]:
        return [m for c in comparisons for m in c.measured(records)]

    return Experiment(name, 1, title, notebook, plan, measure, changeable=False)


COMPARISONS = {
    "count3_operations": (
        Comparison(  # at the ceiling at every budget, so that nothing is asked
            "seeds that repeat",
            COUNT3,
            dict(task="count3", arm="entp"),
            dict(task="count3", arm="decoder"),
            dict(task="count3", arm=EQUAL_FORWARDS),
        ),
        Comparison(
            "seeds that hardly repeat",
            COUNT3_UNSEEN,
            dict(arm="entp"),
            dict(arm="decoder"),
            dict(arm=EQUAL_FORWARDS),
            {"F2-unseen": ("F2-unseen-operations", "tokens")},
        ),
        Comparison(
            "four layers",
            FULL_LAYER_RUNS,
            dict(full=4),
            dict(arm=arm_name(0), full=0, budget=SAME_STEPS),
            dict(full=0, budget=SAME_FORWARDS),
            {"L-4-0": ("L-4-0-operations", "tokens")},
        ),
    ),
    "match3_operations": (
        Comparison(
            "match3",
            MATCH3,
            dict(variant="match3", arm="entp"),
            dict(variant="match3", arm="decoder"),
            dict(arm=EQUAL_FORWARDS),
            {
                "T2-tokens": ("T2-operations", "tokens"),
                "T2-sequences": ("T2-operations-sequences", "sequences"),
            },
        ),
    ),
    "in_context_operations": (
        Comparison(
            "linear",
            IN_CONTEXT,
            dict(function="linear", arm="entp"),
            dict(function="linear", arm="decoder"),
            dict(function="linear", arm=EQUAL_FORWARDS),
            {"F7-linear": ("F7-linear-operations", "all points")},
        ),
    ),
    "openwebtext_operations": (
        Comparison(
            "text",
            OPENWEBTEXT,
            dict(schedule=TABLE_8, arm="entp"),
            dict(schedule=TABLE_8, arm="decoder"),
            dict(arm=EQUAL_FORWARDS),
            {"T3-last": ("T3-operations", "all prefixes")},
            others=dict(arm=COUNTS),
            trained=dict(
                schedule=TABLE_8, arm=EQUAL_FORWARDS
            ),  # learns from every position, for no further token-forwards
        ),
    ),
}
COUNT3_OPERATIONS = experiment_of(
    "count3_operations", "Count3 by decoders with ENTP's multiply-adds", "03b_count3_details"
)
MATCH3_OPERATIONS = experiment_of("match3_operations", "Match3′ by decoders with ENTP's multiply-adds", "06_match3")
IN_CONTEXT_OPERATIONS = experiment_of(
    "in_context_operations",
    "Linear functions in context by decoders with ENTP's multiply-adds",
    "08_in_context_learning",
)
TEXT_OPERATIONS = experiment_of(
    "openwebtext_operations", "Language modelling by decoders with ENTP's multiply-adds", "09_openwebtext"
)
OPERATIONS = (COUNT3_OPERATIONS, MATCH3_OPERATIONS, IN_CONTEXT_OPERATIONS, TEXT_OPERATIONS)
