"""Each model at its own learning rate, which falls to a tenth: linear functions, sets, and text.

A rate that falls trains further than a constant one (``own_rates``), but such a run is finished
only at its end. So decoders with ENTP's steps and decoders with ENTP's multiply-adds are two arms,
and each arm has a peak of its own. Trial runs (random seed 100) choose it by a rule written
beforehand (docs/journal/deciding_runs.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from entp_lab.budgets import EQUAL_OPERATIONS, equal_operations
from entp_lab.configs import Json, RunConfig
from entp_lab.experiment import (
    TRIAL_SEED,
    Arm,
    Experiment,
    PlannedRuns,
    planned,
    with_train,
)
from entp_lab.frames import select
from entp_lab.measurements import Findings
from entp_lab.store import Records
from entp_papers.entp.closed import closed
from entp_papers.entp.deciding import TEXT_POSITIONS
from entp_papers.entp.equal_operations import Comparison

ARMS = {
    "entp": Arm("entp"),
    "decoder": Arm("decoder"),
    EQUAL_OPERATIONS: Arm("decoder", equal_operations),
}
PEAKS = (1e-3, 3e-3, 1e-2)
SHARED = 3e-3  # the peak of earlier pairs, which serve an arm that has the same one


def at_peak(base: RunConfig, arm: Arm, peak: float, seed: int) -> RunConfig:
    """Plan one arm with a learning rate that falls from ``peak`` to a tenth of it."""
    return arm.run(with_train(base, max_lr=peak, min_lr=peak / 10), seed)


@dataclass(frozen=True)
class OwnPeaks:
    """The ``plan``: every arm at every peak on the trial's seed, then pairs at the chosen peaks.

    ``earlier``: experiments whose runs of a tier, with these ``labels``, are pairs at the shared
    peak. ``chosen``: the peak of each arm's pairs, once its trial has told.
    """

    name: str
    earlier: Sequence[Experiment]
    arms: Mapping[str, Arm] = field(default_factory=lambda: ARMS)
    labels: Json = field(default_factory=dict)
    peaks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chosen: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, tier: str, seeds: int = 0) -> PlannedRuns:
        shared = [run for source in self.earlier for run in source.plan(tier, seeds)]
        for entp in select(self.earlier[0].plan(tier, seeds), arm="entp", **self.labels):
            base = replace(entp.config, experiment=self.name)
            seed = entp.labels["seed"]
            if not seed:
                for arm, changed in self.arms.items():
                    for peak in self.peaks.get(arm, PEAKS):
                        trial = at_peak(base, changed, peak, TRIAL_SEED)
                        yield planned(trial, arm=arm, rate=peak)
            for arm, peak in self.chosen.items():
                same = select(shared, arm=arm, seed=seed, **self.labels) if peak == SHARED else ()
                config = same[0].config if same else at_peak(base, self.arms[arm], peak, seed)
                yield planned(config, arm=arm, rate=peak, comparison=self.name, **self.labels)


def experiment(
    name: str, title: str, notebook: str, asked: Json, *earlier: Experiment, **plan
) -> Experiment:
    """Make an experiment whose pairs have the settings of ``earlier``, measured by its rules.

    ``asked`` maps the claims of the first of ``earlier`` to those here, at equal steps; with other
    decoders than these, their names end in the arm's.
    """
    pairs = OwnPeaks(name, earlier, **plan)
    comparisons = []
    for arm in pairs.arms:
        if arm == "entp":
            continue
        end = "" if arm == "decoder" else f"-{arm}"
        mine = {known: f"{new}{end}" for known, new in asked.items()}
        comparisons.append(Comparison(name, earlier[0], mine, pairs.labels, arm=arm))

    def measure(records: Records) -> Findings:
        return [found for each in comparisons for found in each.measured(records)]

    return Experiment(
        name,
        1,
        f"{title}, each model at its own falling learning rate",
        notebook,
        pairs,
        measure,
        tiers=("overnight",),
        paper_runs_of=earlier[0].name,
    )


# Every arm's peak is the shared one, so that the earlier pairs stand; of sets, too
# (``equal_operations``).
LINEAR_FALLING = closed(
    "linear_falling_rates",
    "Linear functions in three dimensions: which falling rate suits which arm",
    "08_in_context_learning",
    paper_runs_of="in_context",
    seeded=False,
)
TEXT_FALLING = experiment(
    "text_falling_rates",
    "Language modelling on all positions",
    "09_openwebtext",
    {"T3-all": "T3-falling"},
    TEXT_POSITIONS,
)
