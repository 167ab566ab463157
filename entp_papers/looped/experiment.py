"""Looped Transformers as computers (Giannou et al. 2023): the studies of notebook 11 by tier."""

from collections.abc import Sequence

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, planned_study
from entp_lib.experiments.measurements import Check
from entp_lib.records.store import Record
from entp_papers.looped.results import verdicts

HALVES = [round(10 ** (-k / 2), 15) for k in range(2, 25)]  # two values of δ per power of 10

TIERS: dict[str, dict[str, dict]] = {
    "smoke": {
        "looped_multiply": dict(x=3, y=2),
        "looped_random_programs": dict(shapes=[[4, 5, 6, 6], [8, 8, 8, 6]], steps=10, precisions=["fp32", "fp64"]),
        "looped_library": dict(precisions=["fp32"], only=["add", "multiply", "divide"]),
        "looped_circuits": dict(most_bits=3, random_pairs=100, flag_bits=4, pointer=2),
        "looped_copying": dict(cases=4, most_tokens=20, most_numbers=3),
        "looped_drift": dict(steps=200, heats=[6.0, 10.0], cold_steps=10),
        "looped_temperature": dict(bits=[4, 8], heats=[2.0, 12.0], programs=5, steps=5),
        "looped_off_target": dict(tokens=[16, 64], heats=[1.0, 4.0]),
        "looped_masks": dict(programs=5, steps=5),
        "looped_restricted": dict(programs=3, steps=5, sizes=[21]),
        "looped_product": dict(d=3, deltas=[1e-3, 1e-5, 1e-7, 1e-10, 1e-11], sinks=[10.0, 40.0], pairs=3),
        "looped_sigmoids": dict(terms=[10, 30]),
        "looped_transpose": dict(sizes=[2, 3], one_layer=[4]),
        "looped_contract": dict(sizes=[2]),
        "looped_depth": dict(levels=[0, 1, 14], deltas=[1e-2, 1e-4], points=100_003),
        "looped_fleq": dict(programs=2, commands=6),
        "looped_calculator": dict(terms=[10, 40], inputs=20),
        "looped_newton": dict(d=3, rounds=12, matrices=1),
        "looped_power": dict(d=3, rounds=12, terms=20, gap=0.7),
        "looped_regression": dict(features=2, examples=3, steps=4, rate=0.1),
        "looped_back_propagation": dict(inputs=2, hidden=2, samples=2, rounds=2, rate=0.2),
        "looped_least_squares": dict(dimension=2, most_examples=3, prompts=2, rounds=20),
        "looped_sizes": dict(bits=8, tokens=[16, 64]),
        "looped_errata": dict(),
        "looped_speed": dict(tokens=[21], batches=[1, 4], seconds=0.01),
    },
    "quick": {
        "looped_multiply": dict(x=6, y=5),
        "looped_random_programs": dict(
            shapes=[
                [4, 8, 11, 500],
                [8, 8, 11, 500],
                [12, 8, 11, 500],
                [16, 8, 11, 500],
                [8, 100, 60, 40],
                [16, 400, 40, 10],
            ],
            steps=50,
            precisions=["fp32", "fp64"],
        ),
        "looped_library": dict(precisions=["fp32", "fp64"], count3_length=6),
        "looped_circuits": dict(),
        "looped_copying": dict(cases=250),
        "looped_drift": dict(steps=100_000, heats=[4.0, 6.0, 8.0, 10.0, 12.0], cold_steps=40),
        "looped_temperature": dict(bits=[4, 8, 16, 20], heats=[float(h) for h in range(3, 23)], programs=20, steps=15),
        "looped_off_target": dict(tokens=[16, 64, 256, 1024], heats=[0.5 * k for k in range(1, 33)]),
        "looped_masks": dict(programs=100, steps=30),
        "looped_restricted": dict(programs=20, steps=20, sizes=[21, 65, 257]),
        "looped_product": dict(d=8, deltas=HALVES, sinks=[5.0 * k for k in range(1, 17)]),
        "looped_sigmoids": dict(terms=[10, 30, 100, 300, 1000]),
        "looped_transpose": dict(sizes=[2, 3, 5, 8], one_layer=[30]),
        "looped_contract": dict(sizes=[1, 2, 3, 5, 8]),
        "looped_depth": dict(levels=list(range(17)), deltas=HALVES[:15], points=100_003, units=2**16),
        "looped_fleq": dict(programs=100, commands=20),
        "looped_calculator": dict(terms=[50, 100, 200, 400, 800], inputs=200),
        "looped_newton": dict(d=5, rounds=25, matrices=5),
        "looped_power": dict(d=5, rounds=30, terms=100, gap=0.7),
        "looped_regression": dict(features=5, examples=5, steps=50, rate=0.05),
        "looped_back_propagation": dict(inputs=4, hidden=4, samples=4, rounds=13, rate=0.5),
        "looped_least_squares": dict(dimension=5, most_examples=10, prompts=4, rounds=22),
        "looped_sizes": dict(bits=8, tokens=[16, 32, 64, 128, 256, 512, 1024, 4096]),
        "looped_errata": dict(),
        "looped_speed": dict(tokens=[21, 65, 257], batches=[1, 32]),
    },
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """All studies; ``seeds`` changes nothing, since nothing is trained and what is random is drawn many times."""
    return [planned_study(StudyConfig("looped", tier, study, params)) for study, params in TIERS.get(tier, {}).items()]


def measure(records: Sequence[Record]) -> list[Check]:
    """Every lemma, corollary and theorem of the text, once all studies are there."""
    whole = {record.config.study for record in records} == set(TIERS["quick"])
    return verdicts(records) if whole else []


LOOPED = Experiment(
    name="looped",
    version=1,
    title="Looped Transformers as programmable computers",
    notebook="11_looped_transformers",
    plan=plan,
    measure=measure,
    jobs=1,
)
