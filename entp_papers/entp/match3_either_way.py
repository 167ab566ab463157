"""Match3′ with its numbers in ascending or descending order, each model at its own rate."""

from dataclasses import replace

from entp_lab.experiment import TRIAL_SEED, TWINS, Arm, Experiment, PlannedRuns, planned, with_train
from entp_lab.frames import select
from entp_papers.entp.deciding import MeasureInOrder
from entp_papers.entp.match3 import MATCH3

RATES = (1e-3, 3e-3)
CHOSEN = {"decoder": 1e-3, "entp": 1e-3}  # by the trial


def plan(tier: str, seeds: int = 0) -> PlannedRuns:
    """Plan both models at every rate on the trial's seed, then pairs at the chosen rates."""
    for entp in select(MATCH3.plan(tier, seeds), variant="match3", arm="entp"):
        config = entp.config
        params = {**config.task_params, "ascending": True, "either_way": True}
        base = replace(config, experiment="match3_either_way", task_params=params)
        seed = entp.labels["seed"]
        trials = [(arm, rate, TRIAL_SEED) for arm in TWINS for rate in RATES] if not seed else []
        pairs = [(arm, rate, seed) for arm, rate in CHOSEN.items()]
        for arm, rate, of_seed in (*trials, *pairs):
            tuned = with_train(base, max_lr=rate, min_lr=rate / 10)
            yield planned(Arm(arm).run(tuned, of_seed), arm=arm, rate=rate)


MATCH3_EITHER_WAY = Experiment(
    "match3_either_way",
    1,
    "Match3′ with its numbers in ascending or descending order, each model at its own rate",
    "06_match3",
    plan,
    MeasureInOrder("T2-either-way"),
    tiers=("overnight",),
    paper_runs_of="match3",
)
