"""Decoders with as many multiply-adds as ENTP, on their own schedule.

At equal steps a decoder uses fewer. The decoders here are compared with the ENTP of the experiment
that compares at equal steps, by the same rules.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from entp_lab.budgets import EQUAL_OPERATIONS
from entp_lab.configs import Json
from entp_lab.experiment import Experiment
from entp_lab.frames import select
from entp_lab.measurements import Findings
from entp_lab.store import Records
from entp_papers.entp.closed import closed
from entp_papers.entp.count3 import COUNT3, COUNT3_UNSEEN, COUNT3_UNSEEN_SETS
from entp_papers.entp.full_layers import FULL_LAYER_RUNS, SAME_STEPS
from entp_papers.entp.in_context.experiment import IN_CONTEXT, IN_CONTEXT_WIDER
from entp_papers.entp.language.experiment import OPENWEBTEXT
from entp_papers.entp.language.tables import COUNTS, TABLE_8
from entp_papers.entp.match3 import MATCH3


class Comparison(NamedTuple):
    """An experiment's comparison with other decoders: its ENTP against those of ``arm`` here.

    ``asked`` maps each claim of the experiment to the claim here. ``where``: labels of all arms.
    ``entp``, ``decoder``: labels of the experiment's own two, by default their ``arm``; the
    decoders here get the decoder's, and those of ``entp_arm`` here ENTP's, so that the experiment's
    ``measure`` finds them.
    """

    name: str
    source: Experiment
    asked: Json
    where: Json
    entp: Json | None = None
    decoder: Json | None = None
    arm: str = EQUAL_OPERATIONS
    entp_arm: str = "entp"

    def measured(self, records: Records) -> Findings:
        """Measure by the experiment's rules, with the decoders here in place of its own."""
        mine = select(records, comparison=self.name)
        own = self.where | (self.decoder or {"arm": "decoder"})
        entp = self.entp or {"arm": self.entp_arm}
        sides = [(select(mine, arm=self.arm), own)]
        sides.append((select(mine, **self.where, **entp), self.entp or {"arm": "entp"}))
        seeds = set.intersection(*({r.labels["seed"] for r in side} for side, _ in sides))
        used = [
            replace(r, labels={**r.labels, **as_own})
            for side, as_own in sides
            for r in select(side, seed=tuple(seeds))
        ]
        used += select(mine, arm=COUNTS)  # of text, which its ``measure`` needs
        found = {m.claim: m for m in self.source.measure(used)}
        return [
            replace(found[claim], claim=asked)
            for claim, asked in self.asked.items()
            if claim in found
        ]


# Decoders larger than ENTP, trained for as many steps, and an ENTP as deep as the deeper one.
LARGER = (
    ("wider", "wider", "entp"),
    ("deeper", "deeper", "entp"),
    ("deeper-entp", "deeper", "deeper-entp"),
)
# On text, the decoder learns from every position, at no extra cost.
COMPARISONS = {
    "count3_operations": (
        # no claim, because accuracy is at the ceiling at every budget
        Comparison("prompts that repeat", COUNT3, {}, dict(task="count3")),
        Comparison("prompts of 6", COUNT3_UNSEEN, {"F2-unseen": "F2-unseen-operations"}, {}),
        Comparison(
            "four layers",
            FULL_LAYER_RUNS,
            {"L-4-0": "L-4-0-operations"},
            {},
            entp=dict(full=4),
            decoder=dict(arm="0 full", full=0, budget=SAME_STEPS),
        ),
    ),
    "sets_falling_rates": (
        Comparison(
            "sets_falling_rates",
            COUNT3_UNSEEN_SETS,
            {"F2-unseen-sets": "F2-unseen-sets-operations"},
            {},
        ),
    ),
    "match3_operations": (
        Comparison("match3", MATCH3, {"T2-shared": "T2-shared-operations"}, dict(variant="match3")),
    ),
    "in_context_operations": (
        Comparison(
            "linear",
            IN_CONTEXT,
            {"F7-linear": "F7-linear-operations", "F7-linear-late": "F7-linear-late-operations"},
            dict(function="linear"),
        ),
    ),
    "match3_larger": tuple(
        Comparison(
            "match3_larger",
            MATCH3,
            {"T2-shared": f"T2-{asked}"},
            dict(variant="match3"),
            arm=arm,
            entp_arm=entp_arm,
        )
        for asked, arm, entp_arm in LARGER
    ),
    "linear_larger_decoders": tuple(
        Comparison(
            "linear_larger_decoders",
            IN_CONTEXT,
            {"F7-linear": f"F7-linear-{asked}", "F7-linear-late": f"F7-linear-late-{asked}"},
            dict(function="linear"),
            arm=arm,
            entp_arm=entp_arm,
        )
        for asked, arm, entp_arm in LARGER
    ),
    "in_context_wider_operations": (
        Comparison(
            "linear, 8 dimensions",
            IN_CONTEXT_WIDER,
            {
                "F7-linear-eight": "F7-linear-eight-operations",
                "F7-linear-eight-late": "F7-linear-eight-late-operations",
            },
            {},
        ),
    ),
    "openwebtext_operations": (
        Comparison(
            "text",
            OPENWEBTEXT,
            {"T3-last": "T3-operations"},
            dict(schedule=TABLE_8),
        ),
    ),
}


def measure(name: str, records: Records) -> Findings:
    """Measure all comparisons of an experiment at equal multiply-adds."""
    return [found for each in COMPARISONS[name] for found in each.measured(records)]


def experiment(name: str, title: str, notebook: str) -> Experiment:
    """Make an experiment of ``COMPARISONS``."""
    source = COMPARISONS[name][0].source
    return closed(
        name,
        f"{title} by decoders with ENTP's multiply-adds",
        notebook,
        partial(measure, name),
        paper_runs_of=source.name,
        still_improving_note=source.still_improving_note,
    )


COUNT3_OPERATIONS = experiment("count3_operations", "Count3", "03b_count3_details")
# Each model at its own falling learning rate, which is 3e-3 for all (docs/journal).
SETS_OPERATIONS = experiment(
    "sets_falling_rates", "Count3 on numbers never seen together", "03_count3"
)
MATCH3_OPERATIONS = experiment("match3_operations", "Match3′", "06_match3")
IN_CONTEXT_OPERATIONS = experiment(
    "in_context_operations", "Linear functions in context", "08_in_context_learning"
)
MATCH3_LARGER = experiment("match3_larger", "Match3′", "06_match3")
LINEAR_LARGER = experiment(
    "linear_larger_decoders", "Linear functions in context", "08_in_context_learning"
)
WIDER_OPERATIONS = experiment(
    "in_context_wider_operations",
    "Linear functions of eight dimensions in context",
    "08_in_context_learning",
)
TEXT_OPERATIONS = experiment("openwebtext_operations", "Language modelling", "09_openwebtext")
