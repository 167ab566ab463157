"""Decoders with ENTP's operations: equal compute by what is computed, where token-forwards count what is defined.

By its definition ENTP sends every token of every prefix through the whole stack. This library computes less: the
first layer's projections once for all prefixes, the last layer at the end of each prefix alone. A decoder with ENTP's
token-forwards therefore has more multiply-adds than ENTP (and takes more processor time), and one with its steps has
fewer. In between lies the decoder here, with as many multiply-adds, on a schedule of its own. It is compared with the
ENTP of the experiment that asks at equal steps and at equal token-forwards, by the same rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from entp_lib.collection.changes import LONGER
from entp_lib.collection.experiment import Experiment, PlannedRun, by_seed, select
from entp_lib.collection.measurements import Measurement
from entp_lib.collection.operations import training_operations
from entp_lib.papers.entp import count3, full_layers, match3
from entp_lib.papers.entp.in_context import experiment as in_context
from entp_lib.papers.entp.language import experiment as language
from entp_lib.papers.entp.language.tables import COUNTS, TABLE_8
from entp_lib.runs.records import Record

BUDGETS = ("steps", "operations", "token-forwards")
EQUAL_OPERATIONS = "operations"  # the arm of a decoder with the multiply-adds of ENTP


@dataclass(frozen=True)
class Asked:
    """One measure at three budgets of the decoder: the claims at equal steps, operations and token-forwards."""

    what: str
    steps: str
    operations: str
    token_forwards: str


@dataclass(frozen=True)
class Comparison:
    """What is asked again: an experiment, its ENTP and the decoder that is trained for longer, by labels.

    ``plan`` and ``measure`` are the experiment's. ``as_fair``: labels of its decoder at equal token-forwards, which
    ``measure`` finds it by. ``beside``: labels of further runs that ``measure`` needs. ``at_steps``: labels of the
    decoder at equal steps, where it is not the one that is trained for longer.
    """

    name: str
    plan: Callable[[str, int], list[PlannedRun]]
    measure: Callable[[Sequence[Record]], list[Measurement]]
    entp: Mapping[str, Any]
    decoder: Mapping[str, Any]
    as_fair: Mapping[str, Any]
    asked: Sequence[Asked]
    beside: Mapping[str, Any] | None = None
    at_steps: Mapping[str, Any] | None = None

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
        seed = entp.labels["seed"]
        other = next(run for run in planned if fits(run, {**self.decoder, "seed": seed}))
        base = replace(other.config, experiment=experiment, train=entp.config.train)
        ratio = training_operations(entp.config) / training_operations(base)
        labels = {**other.labels, "arm": EQUAL_OPERATIONS, "comparison": self.name}
        return PlannedRun(replace(base, train=base.train.lengthened(ratio)), labels)

    def measured(self, records: Sequence[Record]) -> list[Measurement]:
        """The claims of equal token-forwards, of this comparison's decoders."""
        mine = select(records, comparison=self.name)
        as_its_own = [
            replace(r, labels={**r.labels, **self.as_fair}) if r.labels.get("arm") == EQUAL_OPERATIONS else r
            for r in mine
        ]
        names = {asked.token_forwards: asked.operations for asked in self.asked}
        return [replace(m, claim=names[m.claim]) for m in self.measure(as_its_own) if m.claim in names]

    def decoders(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """The decoders' runs by the budget that they have in common with ENTP."""
        return {
            "steps": select(records, **(self.at_steps or self.decoder)),
            "operations": select(records, arm=EQUAL_OPERATIONS, comparison=self.name),
            "token-forwards": select(records, **self.as_fair),
        }

    def budgets(self, judged: pd.DataFrame, records: Sequence[Record]) -> list[dict[str, Any]]:
        """A row for each measure and budget at which there are runs: what the decoder spends, ENTP's lead, verdict.

        Runs of another tier than the decoders with ENTP's operations, or changed ones, are no part of it.
        """
        source, mine = self.plan("smoke", 1)[0].config.experiment, select(records, comparison=self.name)
        tier = mine[0].config.tier if mine else ""
        records = [r for r in records if r.experiment == source and not r.labels.get("changed")] + mine
        records = [r for r in records if r.config.tier == tier]
        entp, rows = select(records, **self.entp), []
        spent = {
            name: costs(runs[0]) / costs(entp[0]) for name, runs in self.decoders(records).items() if runs and entp
        }
        for asked in self.asked:
            for budget, claim in zip(BUDGETS, (asked.steps, asked.operations, asked.token_forwards), strict=True):
                if budget in spent and claim in judged.index and judged.loc[claim, "tier"] == tier:
                    row = judged.loc[claim]
                    lead = f"{row['our_value']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"
                    about = {"task": self.name, "measure": asked.what, "equal": budget}
                    rows.append({**about, **spent[budget].round(2), "ENTP's lead": lead, "verdict": row["verdict"]})
        return rows


def costs(record: Record) -> pd.Series:
    """What a run's training spends: steps, multiply-adds as computed here, and token-forwards."""
    found = {"steps": record.config.train.steps, "multiply-adds": training_operations(record.config)}
    return pd.Series({**found, "token-forwards": record.provenance["token_forwards"]}, dtype=float)


def budgets(experiment: Experiment, judged: pd.DataFrame, records: Sequence[Record]) -> pd.DataFrame:
    """ENTP's lead at each budget of the decoder: what that spends, in ENTP's, the lead with its interval, the verdict.

    ``judged``: verdicts on the claims (``claims.judge``); ``records``: labelled, the experiment's own and those of the
    experiments that it compares them with. Empty where no decoder with ENTP's operations has run.
    """
    rows = [row for c in COMPARISONS[experiment.name] for row in c.budgets(judged.set_index("id"), records)]
    if not any(row["equal"] == "operations" for row in rows):
        return pd.DataFrame()
    return pd.DataFrame(rows).set_index(["task", "measure", "equal"])


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
        return [m for c in comparisons for m in (c.measured(records) if select(records, comparison=c.name) else [])]

    return Experiment(name, 1, title, notebook, plan, measure, changeable=False)


COMPARISONS = {
    "count3_operations": (
        Comparison(
            "seeds that repeat",
            count3.plan,
            count3.measure,
            dict(task="count3", arm="entp"),
            dict(task="count3", arm="decoder"),
            dict(arm=LONGER),
            (
                Asked("tokens", "F2-tokens", "F2-operations", "F2-fair"),
                Asked("sequences", "F2-sequences", "F2-operations-sequences", "F2-fair-sequences"),
            ),
        ),
        Comparison(
            "seeds that hardly repeat",
            count3.plan_unseen,
            count3.measure_unseen,
            dict(arm="entp"),
            dict(arm="decoder"),
            dict(arm=LONGER),
            (
                Asked("tokens", "F2-unseen", "F2-unseen-operations", "F2-unseen-fair"),
                Asked("sequences", "F2-unseen-sequences", "F2-unseen-operations-sequences", "F2-unseen-fair-sequences"),
            ),
        ),
        Comparison(
            "four layers",
            full_layers.plan,
            full_layers.measure,
            dict(full=4),
            dict(full=0, budget=full_layers.EQUAL_STEPS),
            dict(arm=full_layers.arm_name(0), budget=full_layers.EQUAL_COMPUTE),
            (Asked("tokens", "L-4-0", "L-4-0-operations", "L-4-0-fair"),),
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
                Asked("tokens", "T2-tokens", "T2-operations", "T2-fair"),
                Asked("sequences", "T2-sequences", "T2-operations-sequences", "T2-fair-sequences"),
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
            (
                Asked("all points", "F7-linear", "F7-linear-operations", "F7-linear-fair"),
                Asked("late points", "F7-linear-late", "F7-linear-operations-late", "F7-linear-fair-late"),
            ),
        ),
    ),
    "openwebtext_operations": (
        Comparison(
            "text",
            language.plan,
            language.measure,
            dict(schedule=TABLE_8, arm="entp"),
            dict(schedule=TABLE_8, arm=LONGER),  # learns from every position, as it can with no further token-forwards
            dict(arm=LONGER),
            (
                Asked("all prefixes", "T3-last", "T3-operations", "T3-fair"),
                Asked("8 bytes and more", "T3-long", "T3-long-operations", "T3-long-fair"),
            ),
            beside=dict(arm=COUNTS),
            at_steps=dict(schedule=TABLE_8, arm="decoder"),
        ),
    ),
}
COUNT3_OPERATIONS = experiment_of("count3_operations", "Count3 by decoders with ENTP's operations", "03_count3")
MATCH3_OPERATIONS = experiment_of("match3_operations", "Match3′ by decoders with ENTP's operations", "06_match3")
IN_CONTEXT_OPERATIONS = experiment_of(
    "in_context_operations", "Linear functions in context by decoders with ENTP's operations", "08_in_context_learning"
)
TEXT_OPERATIONS = experiment_of(
    "openwebtext_operations", "Language modelling by decoders with ENTP's operations", "09_openwebtext"
)
OPERATIONS = (COUNT3_OPERATIONS, MATCH3_OPERATIONS, IN_CONTEXT_OPERATIONS, TEXT_OPERATIONS)
