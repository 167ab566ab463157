"""Decoders with ENTP's multiply-adds: the budget that counts, beside equal steps and equal token-forwards.

By its definition ENTP sends every token of every prefix through the whole stack. This library computes less: the
first layer's projections once for all prefixes, the last layer at the end of each prefix alone. A decoder with ENTP's
token-forwards therefore has more multiply-adds than ENTP (and takes more processor time), and one with its steps has
fewer. In between lies the decoder here, with as many multiply-adds, on a schedule of its own. It is compared with the
ENTP of the experiment that asks at equal steps, by the same rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from entp_lib.experiments.changes import LONGER
from entp_lib.experiments.experiment import Experiment, PlannedRun, by_seed, select
from entp_lib.experiments.frames import interval_text
from entp_lib.experiments.measurements import Measurement
from entp_lib.experiments.operations import training_operations
from entp_lib.records.store import Record
from entp_papers.entp import count3, full_layers, match3
from entp_papers.entp.in_context import experiment as in_context
from entp_papers.entp.language import experiment as language
from entp_papers.entp.language.tables import COUNTS, TABLE_8

BUDGETS = ("steps", "multiply-adds", "token-forwards")
EQUAL_OPERATIONS = "operations"  # the arm of a decoder with the multiply-adds of ENTP


@dataclass(frozen=True)
class Asked:
    """One measure of a comparison: the claim at equal steps, and the question at equal multiply-adds."""

    what: str
    steps: str
    operations: str


@dataclass(frozen=True)
class Comparison:
    """What is asked again: an experiment, its ENTP and the decoder that is trained for longer, by labels.

    ``plan`` and ``measure`` are the experiment's. ``decoder``: labels of its decoder at equal steps, which ``measure``
    finds it by; ``token_forwards``: of that at equal token-forwards. ``trained``: of the one whose task the decoder
    here has, where that is not the one at equal steps. ``beside``: of further runs that ``measure`` needs.
    """

    name: str
    plan: Callable[[str, int], list[PlannedRun]]
    measure: Callable[[Sequence[Record]], list[Measurement]]
    entp: Mapping[str, Any]
    decoder: Mapping[str, Any]
    token_forwards: Mapping[str, Any]
    asked: Sequence[Asked] = ()
    beside: Mapping[str, Any] | None = None
    trained: Mapping[str, Any] | None = None

    def runs(self, experiment: str, tier: str, seeds: int) -> list[PlannedRun]:
        """Decoders of as many multiply-adds, each before the ENTP run that it is compared with, as that was planned."""
        found, planned = [], self.plan(tier, seeds)
        for run in planned:
            label = {**run.labels, "comparison": self.name}
            if fits(run, self.entp):
                found += [self.longer(experiment, run, planned), PlannedRun(run.config, label)]
            elif self.beside is not None and fits(run, self.beside):
                found.append(PlannedRun(run.config, label))
        return found

    def longer(self, experiment: str, entp: PlannedRun, planned: Sequence[PlannedRun]) -> PlannedRun:
        """The decoder of ENTP's seed, on ENTP's schedule stretched to its multiply-adds."""
        wanted = {**(self.trained or self.decoder), "seed": entp.labels["seed"]}
        other = next(run for run in planned if fits(run, wanted))
        base = replace(other.config, experiment=experiment, train=entp.config.train)
        ratio = training_operations(entp.config) / training_operations(base)
        labels = {**other.labels, "arm": EQUAL_OPERATIONS, "comparison": self.name}
        return PlannedRun(replace(base, train=base.train.lengthened(ratio)), labels)

    def against(self, decoders: Sequence[Record], records: Sequence[Record]) -> dict[str, Measurement]:
        """What the experiment measures of its ENTP, by claim, with ``decoders`` in place of that at equal steps."""
        of_steps = [replace(r, labels={**r.labels, **self.decoder}) for r in decoders]
        others = [r for labels in (self.entp, self.beside) if labels for r in select(records, **labels)]
        return {m.claim: m for m in self.measure([*of_steps, *others])}

    def measured(self, records: Sequence[Record]) -> list[Measurement]:
        """The questions at equal multiply-adds."""
        mine = select(records, comparison=self.name)
        found = self.against(select(mine, arm=EQUAL_OPERATIONS), mine) if mine and self.asked else {}
        return [replace(found[a.steps], claim=a.operations) for a in self.asked if a.steps in found]

    def budgets(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """A row for each measure and budget at which there are runs: what the decoder spends, ENTP's lead.

        Runs of another tier than the decoders with ENTP's multiply-adds, or changed ones, are no part of it.
        """
        source, mine = self.plan("smoke", 1)[0].config.experiment, select(records, comparison=self.name)
        if not mine:
            return []
        own = [r for r in records if r.experiment == source and not {"changed", "comparison"} & set(r.labels)]
        own = [r for r in own if r.config.tier == mine[0].config.tier]
        arms = select(own, **self.decoder), select(mine, arm=EQUAL_OPERATIONS), select(own, **self.token_forwards)
        entp, rows = select(mine, **self.entp), []
        for budget, decoders in zip(BUDGETS, arms, strict=True):
            found = self.against(decoders, mine) if decoders else {}
            for asked in self.asked if found else ():
                spent = (costs(decoders[0]) / costs(entp[0])).round(2)
                lead = interval_text(found[asked.steps].values, "+")
                about = {"task": self.name, "measure": asked.what, "equal": budget}
                rows.append({**about, **spent, "ENTP's lead": lead})
        return sorted(rows, key=lambda row: [a.what for a in self.asked].index(row["measure"]))


def costs(record: Record) -> pd.Series:
    """What a run's training spends: steps, multiply-adds as computed here, and token-forwards."""
    found = {"steps": record.config.train.steps, "multiply-adds": training_operations(record.config)}
    return pd.Series({**found, "token-forwards": record.provenance["token_forwards"]}, dtype=float)


def budgets(experiment: Experiment, records: Sequence[Record]) -> pd.DataFrame:
    """ENTP's lead at each budget of the decoder: what that spends, in ENTP's, and the lead with its interval.

    ``records``: labelled, the experiment's own and those of the experiments that it compares them with. Empty where no
    decoder with ENTP's multiply-adds has run.
    """
    rows = [row for c in COMPARISONS[experiment.name] for row in c.budgets(records)]
    return pd.DataFrame(rows).set_index(["task", "measure", "equal"]) if rows else pd.DataFrame()


def fits(run: PlannedRun, labels: Mapping[str, Any]) -> bool:
    """Whether a planned run carries all of these labels."""
    return all(run.labels.get(name) == value for name, value in labels.items())


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
            count3.plan,
            count3.measure,
            dict(task="count3", arm="entp"),
            dict(task="count3", arm="decoder"),
            dict(task="count3", arm=LONGER),
        ),
        Comparison(
            "seeds that hardly repeat",
            count3.plan_unseen,
            count3.measure_unseen,
            dict(arm="entp"),
            dict(arm="decoder"),
            dict(arm=LONGER),
            (Asked("tokens", "F2-unseen", "F2-unseen-operations"),),
        ),
        Comparison(
            "four layers",
            full_layers.plan,
            full_layers.measure,
            dict(full=4),
            dict(arm=full_layers.arm_name(0), full=0, budget=full_layers.EQUAL_STEPS),
            dict(full=0, budget=full_layers.EQUAL_FORWARDS),
            (Asked("tokens", "L-4-0", "L-4-0-operations"),),
        ),
    ),
    "match3_operations": (
        Comparison(
            "match3",
            match3.plan,
            match3.measure,
            dict(variant="match3", arm="entp"),
            dict(variant="match3", arm="decoder"),
            dict(arm=LONGER),
            (
                Asked("tokens", "T2-tokens", "T2-operations"),
                Asked("sequences", "T2-sequences", "T2-operations-sequences"),
            ),
        ),
    ),
    "in_context_operations": (
        Comparison(
            "linear",
            in_context.plan,
            in_context.measure,
            dict(function="linear", arm="entp"),
            dict(function="linear", arm="decoder"),
            dict(function="linear", arm=LONGER),
            (Asked("all points", "F7-linear", "F7-linear-operations"),),
        ),
    ),
    "openwebtext_operations": (
        Comparison(
            "text",
            language.plan,
            language.measure,
            dict(schedule=TABLE_8, arm="entp"),
            dict(schedule=TABLE_8, arm="decoder"),
            dict(arm=LONGER),
            (Asked("all prefixes", "T3-last", "T3-operations"),),
            beside=dict(arm=COUNTS),
            trained=dict(schedule=TABLE_8, arm=LONGER),  # learns from every position, for no further token-forwards
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
