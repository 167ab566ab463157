"""Tiers of in-context learning: the model, the training, the function classes and what goes with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BOTH, ALL = ("decoder", "entp"), ("decoder", "entp", "hybrid")
SCALES = dict(position_std=0.5, input_std=0.3)

ADAM = dict(betas=(0.9, 0.999), weight_decay=0.0)


@dataclass(frozen=True)
class FunctionRuns:
    """The runs on one function class: the task's parameters, the architectures, the steps of each."""

    task: dict[str, Any]
    architectures: Sequence[str]
    steps: int


@dataclass(frozen=True)
class SettingsGrid:
    """Rates and initial scales on which decoder and ENTP are compared, for so many steps."""

    steps: int
    max_lr: Sequence[float]
    position_std: Sequence[float]
    input_std: Sequence[float]


@dataclass(frozen=True)
class InContextTier:
    """One tier: the model, the training but for its length, the runs of each class and what goes with them.

    ``equal_compute``: the classes for which a decoder is trained for ENTP's token-forwards. ``settings``: the grid on
    which the setting of the runs lies, None for a tier that takes over quick's. ``baselines``: the prompts that
    classical learners get.
    """

    model: dict[str, Any]
    train: dict[str, Any]
    runs: dict[str, FunctionRuns]
    equal_compute: Sequence[str]
    seeds: int
    evaluations: int
    settings: SettingsGrid | None
    baselines: dict[str, int]


MODEL = dict(n_layers=3, n_heads=4, width=64, position_std=1.0, input_std=1.0)
TRAIN = dict(
    batch_size=64,
    max_lr=3e-3,  # the better for the decoder on the grid, and as good as any for ENTP
    min_lr=3e-4,
    warmup_steps=100,
    betas=(0.9, 0.95),
    weight_decay=0.0,
    eval_sequences=512,
    final_eval_sequences=1280,
)
TASK, SPARSE = dict(dims=3, points=6), dict(dims=3, points=6, sparsity=1)

# gpu is meant for half an hour of an H200 per experiment, by counted operations; paper is the schedule of Garg et al.
# docs/costs.md extrapolates what both would cost.
TIERS = {
    "smoke": InContextTier(
        model=dict(n_layers=3, n_heads=2, width=16, **SCALES),
        train=dict(batch_size=8, warmup_steps=2, eval_sequences=16, final_eval_sequences=32),
        runs={
            "linear": FunctionRuns(dict(dims=2, points=4), ALL, 6),
            "sparse": FunctionRuns(dict(dims=3, points=4, sparsity=1), BOTH, 6),
            "network": FunctionRuns(dict(dims=2, points=4, hidden=8), BOTH, 6),
            "tree": FunctionRuns(dict(dims=2, points=4, depth=2), BOTH, 6),
        },
        equal_compute=("linear", "sparse"),
        seeds=2,
        evaluations=3,
        settings=SettingsGrid(steps=3, max_lr=(5e-4,), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=32, costly_prompts=2),
    ),
    "quick": InContextTier(
        model=MODEL,
        train=TRAIN,
        runs={
            "linear": FunctionRuns(TASK, ALL, 500),
            "sparse": FunctionRuns(SPARSE, BOTH, 500),
            "network": FunctionRuns(TASK, BOTH, 300),
            "tree": FunctionRuns({**TASK, "depth": 2}, BOTH, 300),
        },
        equal_compute=("linear",),
        seeds=5,
        evaluations=20,
        settings=SettingsGrid(steps=300, max_lr=(1e-3, 2e-3, 3e-3), position_std=(0.02, 1.0), input_std=(0.02, 1.0)),
        baselines=dict(prompts=1280, costly_prompts=128),
    ),
    # To convergence: twenty times quick's steps on the two classes that the paper's main figure has.
    "overnight": InContextTier(
        model=MODEL,
        train={**TRAIN, "eval_sequences": 1024, "final_eval_sequences": 4096},
        runs={"linear": FunctionRuns(TASK, ALL, 10_000), "sparse": FunctionRuns(SPARSE, BOTH, 10_000)},
        equal_compute=("linear", "sparse"),
        seeds=5,
        evaluations=100,
        settings=None,
        baselines=dict(prompts=4096, costly_prompts=128),
    ),
    "gpu": InContextTier(
        model=dict(n_layers=6, n_heads=4, width=128, **SCALES),
        train={**TRAIN, **ADAM, "max_lr": 5e-4, "min_lr": 5e-5, "warmup_steps": 500, "precision": "bf16"},
        runs={
            "linear": FunctionRuns(dict(curriculum_every=160), ALL, 8000),
            "sparse": FunctionRuns(dict(curriculum_every=160), ALL, 8000),
            "network": FunctionRuns(dict(curriculum_every=64), BOTH, 3000),
            "tree": FunctionRuns(dict(curriculum_every=64), BOTH, 3000),
        },
        equal_compute=(),
        seeds=1,
        evaluations=40,
        settings=SettingsGrid(steps=5000, max_lr=(5e-4, 2e-3), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=1280, costly_prompts=64),
    ),
    "paper": InContextTier(
        model=dict(n_layers=12, n_heads=8, width=256, **SCALES),
        train={
            **TRAIN,
            **ADAM,
            "max_lr": 1e-4,
            "min_lr": 1e-4,
            "warmup_steps": 0,
            "precision": "bf16",
            "eval_sequences": 1280,
        },
        runs={
            name: FunctionRuns(dict(curriculum_every=2000), ALL, 500_000)
            for name in ("linear", "sparse", "network", "tree")
        },
        equal_compute=(),
        seeds=5,
        evaluations=250,
        settings=SettingsGrid(steps=50_000, max_lr=(1e-4, 5e-4), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=1280, costly_prompts=256),
    ),
}


@dataclass(frozen=True)
class SlowerRuns:
    """Sparse functions at a lower rate, for so many steps; all else as in the tier's other runs."""

    steps: int
    max_lr: float


# After ``in_context`` overnight, where one of ENTP's five seeds learned sparse functions: at a third of its rate, and
# for twice the steps (docs/journal has the pilots).
SLOWER = {"smoke": SlowerRuns(6, 1e-3), "overnight": SlowerRuns(20_000, 1e-3)}
