"""Each model at its own constant learning rate: text, linear functions, and sets of numbers never
seen together.

The learning rate stays where the warm-up ends, so that every point of a curve is a finished run of
that many steps: one decoder, with the multiply-adds of ENTP, gives the comparison at equal steps,
too. A trial run of each model and rate (random seed 100) chooses the rates of the five pairs, by a
rule written before it (docs/journal/deciding_runs.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from entp_lab.budgets import EQUAL_OPERATIONS, equal_operations
from entp_lab.configs import RunConfig
from entp_lab.experiment import Experiment, no_claims
from entp_lab.frames import select
from entp_lab.plans import Arm, PlannedRun, planned, with_train
from entp_papers.entp import count3, deciding
from entp_papers.entp.in_context.experiment import IN_CONTEXT

TRIAL_SEED = 100
DECODER_EVALUATIONS = {"smoke": 5, "overnight": 200}  # steps between them
ARMS = {"entp": Arm("entp"), EQUAL_OPERATIONS: Arm("decoder", equal_operations)}


@dataclass(frozen=True)
class OwnRates:
    """The plan of one subject: trial runs, and once ``chosen`` has a rate for each model the five
    pairs.

    ``base``: an experiment whose ENTP at tier overnight gives task, size and number of steps;
    ``labels`` select it.
    """

    experiment: str
    base: Experiment
    rates: tuple[float, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, tier: str, seeds: int = 0) -> list[PlannedRun]:
        """Plan ENTP, and a decoder with ENTP's multiply-adds, by rate and random seed."""
        entp = select(self.base.plan(tier, 1), arm="entp", **self.labels)[0].config
        base = replace(entp, experiment=self.experiment)
        runs = []
        for rate in self.rates:
            runs += [self.run(base, name, rate, TRIAL_SEED) for name in ARMS]
        for seed in range(seeds or (1 if tier == "smoke" else 5)):
            runs += [self.run(base, name, rate, seed) for name, rate in self.chosen.items()]
        return runs

    def run(self, base: RunConfig, name: str, rate: float, seed: int) -> PlannedRun:
        """Plan one model at one rate, which is constant after the warm-up."""
        constant = with_train(base, max_lr=rate, min_lr=rate)
        config = ARMS[name].run(constant, seed)
        if name == EQUAL_OPERATIONS:
            every = DECODER_EVALUATIONS[base.tier]
            config = with_train(config, eval_every=min(every, config.train.steps))
        return planned(config, arm=name, rate=rate)


def experiment(name: str, title: str, notebook: str, plan: OwnRates) -> Experiment:
    """Make the experiment of a plan, whose records decide no claim before its pairs are whole."""
    return Experiment(name, 1, title, notebook, plan, no_claims, tiers=DECODER_EVALUATIONS)


THREE_RATES = (3e-4, 1e-3, 3e-3)
TEXT_OWN_RATES = experiment(
    "text_own_rates",
    "Language modelling on all positions, each model at its own constant learning rate",
    "09_openwebtext",
    OwnRates("text_own_rates", deciding.TEXT_POSITIONS, (6e-4, 1e-3, 3e-3)),
)
LINEAR_OWN_RATES = experiment(
    "linear_own_rates",
    "Linear functions in three dimensions, each model at its own constant learning rate",
    "08_in_context_learning",
    OwnRates("linear_own_rates", IN_CONTEXT, THREE_RATES, labels={"function": "linear"}),
)
SETS_OWN_RATES = experiment(
    "sets_own_rates",
    "Count3 on numbers never seen together, each model at its own constant learning rate",
    "03_count3",
    OwnRates("sets_own_rates", count3.COUNT3_UNSEEN_SETS, THREE_RATES),
)
