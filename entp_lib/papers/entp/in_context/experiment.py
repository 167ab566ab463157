"""In-context learning (§7.2, appendix C.2, Figures 7 and 10): four function classes, what pure ENTP needs, baselines.

The paper's model size, schedule and curriculum are unknown. ``error`` is the squared error divided by E[y²], so that
the predictor 0 scores 1, as a mean over all numbers of examples from none on.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pandas as pd

from entp_lib.collection.claims import Measurement
from entp_lib.collection.experiment import Experiment, no_claims, twins
from entp_lib.collection.frames import paired, summary
from entp_lib.config import ModelConfig, RunConfig, StudyConfig, TrainConfig
from entp_lib.models.entp import token_forwards
from entp_lib.runs.records import Record
from entp_lib.tasks import InContext, generator_for

BOTH, ALL = ("decoder", "entp"), ("decoder", "entp", "hybrid")
LONGER = "decoder, equal compute"  # trained on as many token-forwards as ENTP
SCALES = dict(position_std=0.5, input_std=0.3)

ADAM = dict(betas=(0.9, 0.999), weight_decay=0.0)

# By tier: the model, the training but for its length, (task, architectures, steps) of each function class, the classes
# for which a decoder is trained for ENTP's compute, the grid of settings, on which that of the runs lies, and the
# prompts that baselines get. gpu is meant for half an hour of an H200 per experiment, by counted operations; paper is
# the schedule of Garg et al. README.md extrapolates what both would cost.
TIERS = {
    "smoke": dict(
        model=dict(n_layers=3, n_heads=2, width=16, **SCALES),
        train=dict(batch_size=8, warmup_steps=2, eval_sequences=16, final_eval_sequences=32),
        runs={
            "linear": (dict(dims=2, points=4), ALL, 6),
            "sparse": (dict(dims=3, points=4, sparsity=1), BOTH, 6),
            "network": (dict(dims=2, points=4, hidden=8), BOTH, 6),
            "tree": (dict(dims=2, points=4, depth=2), BOTH, 6),
        },
        equal_compute=("linear", "sparse"),
        seeds=2,
        evaluations=3,
        settings=dict(steps=3, max_lr=(5e-4,), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=32, costly_prompts=2),
    ),
    "quick": dict(
        model=dict(n_layers=3, n_heads=4, width=64, position_std=1.0, input_std=1.0),
        train=dict(
            batch_size=64,
            max_lr=3e-3,  # the better for the decoder on the grid, and as good as any for ENTP
            min_lr=3e-4,
            warmup_steps=100,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            eval_sequences=512,
            final_eval_sequences=1280,
        ),
        runs={
            "linear": (dict(dims=3, points=6), ALL, 500),
            "sparse": (dict(dims=3, points=6, sparsity=1), BOTH, 500),
            "network": (dict(dims=3, points=6), BOTH, 300),
            "tree": (dict(dims=3, points=6, depth=2), BOTH, 300),
        },
        equal_compute=("linear",),
        seeds=5,
        evaluations=20,
        settings=dict(steps=300, max_lr=(1e-3, 2e-3, 3e-3), position_std=(0.02, 1.0), input_std=(0.02, 1.0)),
        baselines=dict(prompts=1280, costly_prompts=128),
    ),
    "gpu": dict(
        model=dict(n_layers=6, n_heads=4, width=128, **SCALES),
        train=dict(
            batch_size=64,
            max_lr=5e-4,
            min_lr=5e-5,
            warmup_steps=500,
            **ADAM,
            precision="bf16",
            eval_sequences=512,
            final_eval_sequences=1280,
        ),
        runs={
            "linear": (dict(curriculum_every=160), ALL, 8000),
            "sparse": (dict(curriculum_every=160), ALL, 8000),
            "network": (dict(curriculum_every=64), BOTH, 3000),
            "tree": (dict(curriculum_every=64), BOTH, 3000),
        },
        equal_compute=(),
        seeds=1,
        evaluations=40,
        settings=dict(steps=5000, max_lr=(5e-4, 2e-3), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=1280, costly_prompts=64),
    ),
    "paper": dict(
        model=dict(n_layers=12, n_heads=8, width=256, **SCALES),
        train=dict(
            batch_size=64,
            max_lr=1e-4,
            min_lr=1e-4,
            warmup_steps=0,
            **ADAM,
            precision="bf16",
            eval_sequences=1280,
            final_eval_sequences=1280,
        ),
        runs={name: (dict(curriculum_every=2000), ALL, 500_000) for name in ("linear", "sparse", "network", "tree")},
        equal_compute=(),
        seeds=5,
        evaluations=250,
        settings=dict(steps=50_000, max_lr=(1e-4, 5e-4), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=1280, costly_prompts=256),
    ),
}


def base_run(experiment: str, tier: str, function: str, steps: int, evaluations: int) -> RunConfig:
    """The decoder of a tier on a function class, for so many steps."""
    plan = TIERS[tier]
    params = {"function": function, **plan["runs"][function][0]}
    task = InContext(**params)
    shape = dict(vocab_size=0, max_length=task.length, input_dim=task.dims, output_dim=1)
    train = TrainConfig(steps=steps, eval_every=max(1, steps // evaluations), **plan["train"])
    return RunConfig(experiment, tier, "in_context", params, ModelConfig("decoder", **plan["model"], **shape), train)


def compute_ratio(task: InContext) -> float:
    """Token-forwards of ENTP for one of a decoder, on whole prompts."""
    wanted_BT = task.batch(generator_for("cpu", 0), 1).wanted_BT
    return token_forwards("entp", wanted_BT) / token_forwards("decoder", wanted_BT)


def configs(tier: str, seeds: int = 0) -> list[RunConfig]:
    """Every function class, architecture and seed of a tier, and decoders at ENTP's compute."""
    plan = TIERS.get(tier, {"runs": {}})
    runs = []
    for function, (_, architectures, steps) in plan["runs"].items():
        base = base_run("in_context", tier, function, steps, plan["evaluations"])
        runs += twins(base, architectures, seeds or plan["seeds"])
        if function in plan["equal_compute"]:
            longer = int(steps * compute_ratio(InContext(**base.task_params)))  # not a step more than ENTP's compute
            base = base_run("in_context", tier, function, longer, plan["evaluations"])
            runs += twins(base, ("decoder",), seeds or plan["seeds"])
    return runs


def settings_configs(tier: str, seeds: int = 0) -> list[RunConfig]:
    """ENTP and decoder on linear functions over a grid of rates and initial scales, one seed unless told otherwise."""
    if tier not in TIERS:
        return []
    grid, runs = TIERS[tier]["settings"], []
    base = base_run("in_context_settings", tier, "linear", grid["steps"], 3)
    for rate, position_std, input_std in product(grid["max_lr"], grid["position_std"], grid["input_std"]):
        model = replace(base.model, position_std=position_std, input_std=input_std)
        train = replace(base.train, max_lr=rate, min_lr=rate / 10)
        runs += twins(replace(base, model=model, train=train), BOTH, seeds or 1)
    return runs


def baseline_configs(tier: str, seeds: int = 0) -> list[StudyConfig]:
    """The classical learners of every function class, on the prompts of every seed."""
    if tier not in TIERS:
        return []
    plan, studies = TIERS[tier], []
    for function, (task, *_) in plan["runs"].items():
        for seed in range(seeds or plan["seeds"]):
            params = {"task": {"function": function, **task}, **plan["baselines"], "seed": seed}
            studies.append(StudyConfig("in_context_baselines", tier, "in_context_baselines", params, seed, seed))
    return studies


def task_of(record: Record) -> InContext:
    """The task of a run or of a study of baselines."""
    config = record.config
    return InContext(**(config.params["task"] if isinstance(config, StudyConfig) else config.task_params))


def arm_of(config: RunConfig) -> str:
    """The architecture, or ``LONGER`` for a decoder that was trained longer than its tier's others."""
    steps = TIERS[config.tier]["runs"][config.task_params["function"]][2]
    longer = config.experiment == "in_context" and config.train.steps > steps
    return LONGER if longer else config.model.architecture


def table(records: Sequence[Record]) -> pd.DataFrame:
    """``summary`` with function class, arm, and the error."""
    found = summary(records)
    found["function"] = [task_of(r).function for r in records]
    found["arm"] = [arm_of(r.config) for r in records]
    found["error"] = [r.metrics["loss"] / task_of(r).normaliser for r in records]
    return found


CLAIMS = {  # paired differences first − second of the error
    "F7-linear": ("linear", "decoder", "entp"),
    "F7-sparse": ("sparse", "decoder", "entp"),
    "F7-linear-fair": ("linear", LONGER, "entp"),
    "F7-hybrid": ("linear", "decoder", "hybrid"),
    "F10-network": ("network", "decoder", "entp"),
    "F10-tree": ("tree", "decoder", "entp"),
}
EQUALITIES = ("F10-network", "F10-tree")  # two models that have learned nothing are not thereby equal
LEARNED = 0.9  # a mean error below which a model has learned something; the predictor 0 scores 1


def gap(found: pd.DataFrame, function: str, first: str, second: str) -> pd.Series:
    """Differences of the error between two arms, by seed, from a ``table``."""
    part = found[found["function"] == function]
    return paired(part.assign(architecture=part["arm"]), "error", first, second)


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Figures 7 and 10 at equal steps and at equal compute; never at the paper's settings, which are unknown.

    Claims of equality are measured only where the mean error of both arms is below ``LEARNED``.
    """
    if not records:
        return []
    found, measured = table(records), []
    errors = found.groupby(["function", "arm"])["error"].mean()
    for claim, (function, *arms) in CLAIMS.items():
        if claim in EQUALITIES and not all(errors.get((function, arm), 1.0) < LEARNED for arm in arms):
            continue
        values = gap(found, function, *arms)
        if len(values):
            used = [r for r in records if task_of(r).function == function and arm_of(r.config) in arms]
            ids = tuple(f"in_context/{r.id}" for r in used)
            measured.append(Measurement(claim, values.tolist(), records[0].config.tier, ids))
    return measured


IN_CONTEXT, IN_CONTEXT_SETTINGS, IN_CONTEXT_BASELINES = (
    Experiment(name, version=1, title=title, notebook="08_in_context_learning", configs=listed, measure=judged)
    for name, title, listed, judged in (
        ("in_context", "Functions learned in context", configs, measure),
        ("in_context_settings", "What pure ENTP needs to learn in context", settings_configs, no_claims),
        ("in_context_baselines", "Classical learners in context", baseline_configs, no_claims),
    )
)
