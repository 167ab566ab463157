"""The price of a training step: seconds of ENTP and of a decoder.

They are measured by length, shape, instruction set and precision.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F

from entp_lab.experiment import Experiment, PlannedRuns, planned_study
from entp_lab.provenance import AVX2, NATIVE, for_new_processes
from entp_lab.studies import Study, at_least
from entp_lib import costs as complexity
from entp_lib.config import SIZES, ModelConfig
from entp_lib.kernels.processor import multiplies_bf16
from entp_lib.model import Transformer, build_model
from entp_lib.validation import one_of
from entp_papers.entp.complexity.measurements import VOCABULARY, timings

ARITHMETIC = ((AVX2, "fp32"), (NATIVE, "fp32"), (NATIVE, "bf16"))  # instruction set and precision
LENGTHS = [8, 16, 32, 64, 128]
TIERS = {
    "smoke": [dict(n_layers=2, n_heads=1, width=8, lengths=[4, 8], tokens=16, rounds=1)],
    "quick": [
        dict(n_layers=layers, n_heads=heads, width=width, lengths=lengths, tokens=512, rounds=3)
        for layers, heads, width, lengths in (
            (3, 1, 64, [*LENGTHS, 256]),
            (*SIZES["small"].values(), [*LENGTHS, 256]),
            (3, 6, 384, LENGTHS),
            (6, 3, 192, LENGTHS),
        )
    ],
}


def steps_study(arithmetic: str, precision: str, **params) -> Study:
    """Run ``time_steps`` for one shape in a separate process with the given arithmetic.

    ``arithmetic``: "AVX2", or "native" for every instruction that the processor has. ConfigError
    for any other, for an unknown precision, and for lengths, tokens or rounds below 1.
    """
    one_of("arithmetic", arithmetic, (AVX2, NATIVE))
    one_of("precision", precision, ("fp32", "bf16"))
    at_least(
        1,
        lengths=min(params["lengths"], default=0),
        tokens=params["tokens"],
        rounds=params["rounds"],
    )
    with (
        for_new_processes(arithmetic),
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        return pool.submit(time_steps, precision, **params).result()


def time_steps(
    precision: str,
    n_layers: int,
    n_heads: int,
    width: int,
    lengths: Sequence[int],
    tokens: int,
    rounds: int,
) -> Study:
    """Measure seconds and multiply-adds of a forward and backward pass by length, on one thread.

    Return (metrics, curves). The loss is on every position; a batch has ``tokens`` tokens, and at
    least one sequence. Seconds are processor time, the lowest of rounds in which both architectures
    and all lengths take turns, so that other work disturbs them little.
    """
    torch.set_num_threads(1)
    cfg = ModelConfig("entp", n_layers, n_heads, width, VOCABULARY, max(lengths))
    models = {name: build_model(replace(cfg, architecture=name)) for name in ("entp", "decoder")}

    def step_of(model: Transformer, n: int) -> Callable[[], None]:
        inputs_BT, targets_BT = torch.randint(VOCABULARY, (2, max(1, tokens // n), n))
        every_BT = torch.ones_like(inputs_BT, dtype=torch.bool)

        def step() -> None:
            model.zero_grad(set_to_none=True)
            for part in model.plan(every_BT):
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    losses = F.cross_entropy(
                        model(inputs_BT, part), targets_BT[part.scored_BT], reduction="sum"
                    )
                losses.backward()

        return step

    seconds = timings(
        {name: partial(step_of, model) for name, model in models.items()},
        lengths,
        rounds,
        time.process_time,
    )
    curves = {"length": list(lengths)}
    for name, model in models.items():
        passes = {n: complexity.training_pass(model.cfg, range(1, n + 1), n) for n in lengths}
        curves[f"{name}_seconds"] = seconds[name]
        curves[f"{name}_operations"] = [
            3 * max(1, tokens // n) * counted for n, counted in passes.items()
        ]
    return {
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "bf16_products": multiplies_bf16(),
    }, curves


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan every shape of the tier with every arithmetic.

    ``smoke`` leaves out bf16, because compiling for it would take longer than everything else.
    ``seeds`` is ignored, because costs do not depend on weights.
    """
    arithmetic = ARITHMETIC[:2] if tier == "smoke" else ARITHMETIC
    for shape, (name, precision) in product(TIERS.get(tier, []), arithmetic):
        params = {**shape, "arithmetic": name, "precision": precision}
        label = "{n_layers}/{n_heads}/{width}".format(**shape)
        yield planned_study("training_steps", tier, "training_steps", params, shape=label)


TRAINING_STEPS = Experiment(
    "training_steps",
    1,
    "The price of a training step",
    "02_complexity",
    plan,
    seeded=False,
    jobs=1,
)
