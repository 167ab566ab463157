"""Decoders with ENTP's multiply-adds, on a schedule of their own.

A decoder with ENTP's steps has fewer. The one here is compared with the ENTP of the experiment that
asks at equal steps, by the same rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd

from entp_lab import budgets as cost
from entp_lab.budgets import EQUAL_FORWARDS, EQUAL_OPERATIONS
from entp_lab.experiment import Experiment
from entp_lab.frames import interval_text, select
from entp_lab.measurements import Measurement
from entp_lab.plans import PlannedRun, by_seed
from entp_lab.store import Record
from entp_papers.entp.count3 import COUNT3, COUNT3_UNSEEN
from entp_papers.entp.full_layers import FULL_LAYER_RUNS, SAME_STEPS
from entp_papers.entp.in_context.experiment import IN_CONTEXT, IN_CONTEXT_WIDER
from entp_papers.entp.language.experiment import OPENWEBTEXT
from entp_papers.entp.language.tables import COUNTS, TABLE_8
from entp_papers.entp.match3 import MATCH3


@dataclass(frozen=True)
class Comparison:
    """An experiment's comparison on another budget: its ENTP and the decoders that it is compared
    with, by labels.

    ``asked``: for each claim at equal steps the question at equal multiply-adds, and what both
    measure. ``where``: labels of all arms. ``decoder``: of the one at equal steps, which the
    experiment's ``measure`` finds it by; ``task_of``: labels of the run whose task the decoder here
    has, where that is another. ``others``: labels of further runs that ``measure`` needs.
    """

    name: str
    source: Experiment
    asked: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    entp: Mapping[str, Any] = field(default_factory=lambda: {"arm": "entp"})
    decoder: Mapping[str, Any] = field(default_factory=lambda: {"arm": "decoder"})
    task_of: Mapping[str, Any] | None = None
    others: Mapping[str, Any] | None = None

    def runs(self, experiment: str, tier: str, seeds: int) -> list[PlannedRun]:
        """Plan decoders with ENTP's multiply-adds, on its schedule stretched, each before
        its ENTP.
        """
        planned = self.source.plan(tier, seeds)
        found = []
        whose = self.task_of or self.decoder
        for entp in select(planned, **self.where, **self.entp):
            other = select(planned, **self.where, **whose, seed=entp.labels["seed"])[0]
            base = replace(other.config, experiment=experiment, train=entp.config.train)
            config = cost.on_budget(cost.equal_operations, entp.config, base)
            found += [PlannedRun(config, other.labels | {"arm": EQUAL_OPERATIONS}), entp]
        found += select(planned, **self.others) if self.others else []
        return [replace(run, labels=run.labels | {"comparison": self.name}) for run in found]

    def against(
        self, decoders: Sequence[Record], records: Sequence[Record]
    ) -> dict[str, Measurement]:
        """Measurements of the experiment's ENTP, by claim, with ``decoders`` in place of that at
        equal steps.
        """
        of_steps = [replace(r, labels={**r.labels, **self.where, **self.decoder}) for r in decoders]
        others = select(records, **self.others) if self.others else []
        entp = select(records, **self.where, **self.entp)
        return (
            {m.claim: m for m in self.source.measure([*of_steps, *entp, *others])}
            if decoders
            else {}
        )

    def measured(self, records: Sequence[Record]) -> list[Measurement]:
        """Return the questions at equal multiply-adds."""
        mine = select(records, comparison=self.name)
        found = self.against(select(mine, arm=EQUAL_OPERATIONS), mine) if self.asked else {}
        return [
            replace(found[claim], claim=asked)
            for claim, (asked, _) in self.asked.items()
            if claim in found
        ]

    def budgets(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Return by measure and budget what the decoder spends and ENTP's lead, of unchanged runs
        of this tier.
        """
        mine = select(records, comparison=self.name)
        rows = []
        unchanged = [r for r in records if not {"changed", "comparison"} & set(r.labels)]
        tiers = {r.config.tier for r in mine}
        own = [r for r in unchanged if r.experiment == self.source.name and r.config.tier in tiers]
        arms = {
            "steps": select(own, **self.where, **self.decoder),
            "multiply-adds": select(mine, arm=EQUAL_OPERATIONS),
        }
        found = {budget: self.against(decoders, mine) for budget, decoders in arms.items()}
        for claim, (_, measure) in self.asked.items():
            for budget, measured in found.items():
                if measured:
                    entp = select(mine, **self.where, **self.entp)[0]
                    spent = (costs(arms[budget][0]) / costs(entp)).round(2)
                    about = {"task": self.name, "measure": measure, "equal": budget}
                    rows.append(
                        {
                            **about,
                            **spent,
                            "ENTP's lead": interval_text(measured[claim].values, "+"),
                        }
                    )
        return rows


def costs(record: Record) -> pd.Series:
    """Cost of a run's training: steps, and multiply-adds as computed here."""
    found = {
        "steps": record.config.train.steps,
        "multiply-adds": cost.training_operations(record.config),
    }
    return pd.Series(found, dtype=float)


def budgets(experiment: Experiment, records: Sequence[Record]) -> pd.DataFrame:
    """ENTP's lead at each budget of the decoder: what that spends, in ENTP's, and the lead with its
    interval.

    ``records``: labelled, the experiment's own and those of the experiments that it compares them
    with.
    """
    rows = [row for c in COMPARISONS[experiment.name] for row in c.budgets(records)]
    return pd.DataFrame(rows).set_index(["task", "measure", "equal"]) if rows else pd.DataFrame()


def plan(name: str, tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Plan the runs of an experiment's comparisons."""
    return by_seed(
        [run for comparison in COMPARISONS[name] for run in comparison.runs(name, tier, seeds)]
    )


def measure(name: str, records: Sequence[Record]) -> list[Measurement]:
    """Return the questions at equal multiply-adds of an experiment's comparisons."""
    return [m for comparison in COMPARISONS[name] for m in comparison.measured(records)]


FOUR_LAYERS = dict(entp=dict(full=4), decoder=dict(arm="0 full", full=0, budget=SAME_STEPS))
MATCH3_ASKED = {"T2-shared": ("T2-shared-operations", "sequences")}
LATE = "from d examples on"
LINEAR_ASKED = {
    "F7-linear": ("F7-linear-operations", "all points"),
    "F7-linear-late": ("F7-linear-late-operations", LATE),
}
TEXT_ASKED = {"T3-last": ("T3-operations", "all prefixes")}
COUNTED = dict(arm=COUNTS)
LINEAR_EIGHT = {
    "F7-linear-eight": ("F7-linear-eight-operations", "all points"),
    "F7-linear-eight-late": ("F7-linear-eight-late-operations", LATE),
}
# the decoder learns from every position, which costs it nothing more
ALL_POSITIONS = dict(task_of=dict(arm=EQUAL_FORWARDS), others=COUNTED)
COMPARISONS = {
    "count3_operations": (
        Comparison(
            "prompts that repeat", COUNT3, where=dict(task="count3")
        ),  # at the ceiling at every budget
        Comparison(
            "prompts of 6", COUNT3_UNSEEN, {"F2-unseen": ("F2-unseen-operations", "tokens")}
        ),
        Comparison(
            "four layers", FULL_LAYER_RUNS, {"L-4-0": ("L-4-0-operations", "tokens")}, **FOUR_LAYERS
        ),
    ),
    "match3_operations": (Comparison("match3", MATCH3, MATCH3_ASKED, dict(variant="match3")),),
    "in_context_operations": (
        Comparison("linear", IN_CONTEXT, LINEAR_ASKED, dict(function="linear")),
    ),
    "in_context_wider_operations": (
        Comparison("linear, 8 dimensions", IN_CONTEXT_WIDER, LINEAR_EIGHT),
    ),
    "openwebtext_operations": (
        Comparison("text", OPENWEBTEXT, TEXT_ASKED, dict(schedule=TABLE_8), **ALL_POSITIONS),
    ),
}


def experiment(name: str, title: str, notebook: str) -> Experiment:
    """Make an experiment of ``COMPARISONS``."""
    title = f"{title} by decoders with ENTP's multiply-adds"
    tiers = ("smoke", "overnight")
    return Experiment(name, 1, title, notebook, partial(plan, name), partial(measure, name), tiers)


COUNT3_OPERATIONS = experiment("count3_operations", "Count3", "03b_count3_details")
MATCH3_OPERATIONS = experiment("match3_operations", "Match3′", "06_match3")
IN_CONTEXT_OPERATIONS = experiment(
    "in_context_operations", "Linear functions in context", "08_in_context_learning"
)
WIDER_OPERATIONS = experiment(
    "in_context_wider_operations",
    "Linear functions of eight dimensions in context",
    "08_in_context_learning",
)
TEXT_OPERATIONS = experiment("openwebtext_operations", "Language modelling", "09_openwebtext")
