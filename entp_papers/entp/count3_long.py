"""Count3 at length 24 with ENTP as it is defined: it learns from all prefixes of every sequence, as a decoder does.

The pairs of ``gates`` give ENTP a quarter of the answers, since every further prefix costs it a pass. Here it has all
of them, on fewer steps: eleven times a decoder's token-forwards, 6.6 times its multiply-adds. It is compared with the
decoder of the same steps, and with that of the pairs, which has more steps and still half of ENTP's multiply-adds.
"""

from collections.abc import Sequence
from dataclasses import replace

from entp_lib.experiments.changes import MORE_STEPS
from entp_lib.experiments.experiment import Experiment, PlannedRun, planned
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_papers.entp import plateau
from entp_papers.entp.gates import PAIRS, counting_run, plan_counting_pairs

NAME = "count3_long_all"
SCHEDULES = {"smoke": dict(steps=10, eval_every=5), "overnight": dict(steps=12_000, eval_every=200)}
CLAIMS = {"F2-long-all": "decoder", "F2-long-all-more": MORE_STEPS}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """By seed: decoder and ENTP on all prefixes, and the decoder that ``count3_long_pairs`` has."""
    if tier not in SCHEDULES:
        return []
    wanted = seeds or (2 if tier == "smoke" else PAIRS)
    others = {run.labels["seed"]: run for run in plan_counting_pairs(tier, wanted) if run.labels["arm"] == "decoder"}
    runs = []
    for seed in range(wanted):
        base = counting_run(NAME, tier, "decoder", seed).config
        base = replace(base, train=replace(base.train, **SCHEDULES[tier]))
        for architecture in ("decoder", "entp"):
            runs.append(planned(replace(base, model=replace(base.model, architecture=architecture)), drawn=0))
        runs.append(planned(others[seed].config, arm=MORE_STEPS, drawn=0))
    return runs


def measure(records: Sequence[Record]) -> list[Measurement]:
    """ENTP − each decoder in token accuracy at the end of its own schedule."""
    return plateau.leads(records, CLAIMS)


COUNT3_LONG_ALL = Experiment(
    name=NAME,
    version=1,
    title="Count3 at length 24, all prefixes",
    notebook="03_count3",
    plan=plan,
    measure=measure,
    changeable=False,
)
