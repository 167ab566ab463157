"""The studies of Looped Transformers (Giannou et al. 2023) at each scale."""

from entp_lab.experiment import Experiment
from entp_lab.studies import plan_studies
from entp_lab.theory import checks_of

HALVES = [round(10 ** (-k / 2), 15) for k in range(2, 25)]  # two values of δ per power of 10

TIERS = {
    "smoke": {
        "multiply": dict(x=3, y=2),
        "random_programs": dict(
            shapes=[[4, 5, 6, 6], [8, 8, 8, 6]], steps=10, precisions=["fp32", "fp64"]
        ),
        "library": dict(precisions=["fp32"], only=["add", "multiply", "divide"]),
        "circuits": dict(most_bits=3, random_pairs=100, flag_bits=4, pointer=2),
        "copying": dict(cases=4, most_tokens=20, most_numbers=3),
        "drift": dict(steps=200, heats=[6.0, 10.0], cold_steps=10),
        "temperature": dict(bits=[4, 8], heats=[2.0, 12.0], programs=5, steps=5),
        "off_target": dict(tokens=[16, 64], heats=[1.0, 4.0]),
        "masks": dict(programs=5, steps=5),
        "restricted": dict(programs=3, steps=5, sizes=[21]),
        "product": dict(d=3, deltas=[1e-3, 1e-5, 1e-7, 1e-10, 1e-11], sinks=[10.0, 40.0], pairs=3),
        "sigmoids": dict(terms=[10, 30]),
        "transpose": dict(sizes=[2, 3], one_layer=[4]),
        "contract": dict(sizes=[2]),
        "depth": dict(levels=[0, 1, 14], deltas=[1e-2, 1e-4], points=100_003),
        "fleq": dict(programs=2, commands=6),
        "calculator": dict(terms=[10, 40], inputs=20),
        "newton": dict(d=3, rounds=12, matrices=1),
        "power": dict(d=3, rounds=12, terms=20, gap=0.7),
        "regression": dict(features=2, examples=3, steps=4, rate=0.1),
        "back_propagation": dict(inputs=2, hidden=2, samples=2, rounds=2, rate=0.2),
        "least_squares": dict(dimension=2, most_examples=3, prompts=2, rounds=20),
        "sizes": dict(bits=8, tokens=[16, 64]),
        "errata": dict(),
        "speed": dict(tokens=[21], batches=[1, 4], seconds=0.01),
        "one_head": dict(d=2, newton_rounds=10, power_rounds=4, root_rounds=5, learning_rounds=1),
        "one_head_sums": dict(terms=[4, 10], points=20),
        "ranges": dict(terms=[10, 30], points=100),
    },
    "quick": {
        "multiply": dict(x=6, y=5),
        "random_programs": dict(
            shapes=[
                *([bits, 8, 11, 500] for bits in (4, 8, 12, 16)),
                [8, 100, 60, 40],
                [16, 400, 40, 10],
            ],
            steps=50,
            precisions=["fp32", "fp64"],
        ),
        "library": dict(precisions=["fp32", "fp64"], count3_length=6),
        "circuits": dict(),
        "copying": dict(cases=250),
        "drift": dict(steps=100_000, heats=[4.0, 6.0, 8.0, 10.0, 12.0], cold_steps=40),
        "temperature": dict(
            bits=[4, 8, 16, 20], heats=[float(h) for h in range(3, 23)], programs=20, steps=15
        ),
        "off_target": dict(tokens=[16, 64, 256, 1024], heats=[0.5 * k for k in range(1, 33)]),
        "masks": dict(programs=100, steps=30),
        "restricted": dict(programs=20, steps=20, sizes=[21, 65, 257]),
        "product": dict(d=8, deltas=HALVES, sinks=[5.0 * k for k in range(1, 17)]),
        "sigmoids": dict(terms=[10, 30, 100, 300, 1000]),
        "transpose": dict(sizes=[2, 3, 5, 8], one_layer=[30]),
        "contract": dict(sizes=[1, 2, 3, 5, 8]),
        "depth": dict(levels=list(range(17)), deltas=HALVES[:15], points=100_003, units=2**16),
        "fleq": dict(programs=100, commands=20),
        "calculator": dict(terms=[50, 100, 200, 400, 800], inputs=200),
        "newton": dict(d=5, rounds=25, matrices=5),
        "power": dict(d=5, rounds=30, terms=100, gap=0.7),
        "regression": dict(features=5, examples=5, steps=50, rate=0.05),
        "back_propagation": dict(inputs=4, hidden=4, samples=4, rounds=13, rate=0.5),
        "least_squares": dict(dimension=5, most_examples=10, prompts=4, rounds=22),
        "sizes": dict(bits=8, tokens=[16, 32, 64, 128, 256, 512, 1024, 4096]),
        "errata": dict(),
        "speed": dict(tokens=[21, 65, 257], batches=[1, 32]),
        "one_head": dict(d=4, newton_rounds=20, power_rounds=20, root_rounds=6, learning_rounds=10),
        "one_head_sums": dict(terms=[10, 30, 100, 300], points=100),
        "ranges": dict(terms=[10, 30, 100, 300], points=500),
    },
}


LOOPED = Experiment(
    "looped",
    1,
    "Looped Transformers as programmable computers",
    "11_looped_transformers",
    plan_studies("looped", TIERS),
    checks_of("entp_papers.looped.claims"),
    jobs=1,
)
