"""Experiments on inductive scratchpads (Abbe et al. 2024): exact studies and trained models."""

from collections.abc import Sequence

import pandas as pd

from entp_lab.experiment import Experiment, PlannedRuns, planned_study
from entp_lab.measurements import Comparisons, Paired
from entp_lab.store import Record
from entp_lab.studies import long, plan_studies
from entp_lab.theory import checks_of

SCHEMES = ["learned", "rotary", "alibi", "none"]
STUDIES = {
    "smoke": {
        "equivalence": dict(
            schemes=["learned", "alibi"],
            architectures=["decoder"],
            most_states=3,
            examples=1,
            batches=1,
        ),
        "writing": dict(schemes=["learned", "alibi"], prompts=6, longest=4, states=4, n_layers=2),
        "reuse": dict(scheme="learned", states=4, longest=2, n_layers=2, texts=1),
        "relative": dict(most_tokens=3, states=4, layers=2),
        "mixed": dict(schemes=["learned", "alibi"], examples=2, batches=1),
    },
    "quick": {
        "equivalence": dict(
            schemes=SCHEMES,
            architectures=["decoder", "entp"],
            most_states=6,
            examples=3,
            batches=20,
        ),
        "writing": dict(schemes=SCHEMES, prompts=200, longest=6, states=6, n_layers=2),
        "reuse": dict(scheme="learned", states=8, longest=5, n_layers=3, texts=40),
        "relative": dict(most_tokens=6, states=6, layers=4),
        "mixed": dict(schemes=SCHEMES, examples=4, batches=20),
    },
}

SCRATCHPAD = Experiment(
    "scratchpad",
    1,
    "Inductive scratchpads: two ways of training, of writing and of keeping keys",
    "13_inductive_scratchpad",
    plan_studies("scratchpad", STUDIES),
    checks_of("entp_papers.scratchpad.claims"),
)

# By arm: the scratchpad and the architecture.
ARMS = {
    "inductive decoder": ("inductive", "decoder"),
    "ordinary decoder": ("ordinary", "decoder"),
    "decoder without": ("none", "decoder"),
    "inductive ENTP": ("inductive", "entp"),
}
DECODERS = ["inductive decoder", "ordinary decoder", "decoder without"]

TRAIN = dict(
    steps=1200,
    batch_size=32,
    max_lr=3e-3,
    min_lr=3e-4,
    warmup_steps=50,
    weight_decay=0.01,
    grad_clip=1.0,
    eval_every=1200,
)
PARITY = dict(
    n_layers=2,
    n_heads=4,
    width=64,
    problem_params=dict(slots=16),
    train_sizes=list(range(1, 9)),
    test_sizes=[4, 8, 10, 12, 14, 16],
)
# Random digits and $ before the operands put every character at every place of a state in training,
# so that rotating an operand by one is learned for all lengths.
SHIFT = dict(
    n_layers=2,
    n_heads=4,
    width=48,
    problem_params=dict(most_digits=6, filling="0123456789$"),
    train_sizes=[1, 2, 3],
    test_sizes=[2, 3, 4, 5, 6],
)
# Three digits of either operand leave slots for spaces; with five there are none.
SPACED = dict(
    SHIFT,
    width=64,
    problem_params=dict(most_digits=5, filling="0123456789$"),
    test_sizes=[2, 3, 4, 5],
)
TINY = dict(
    n_layers=2,
    n_heads=2,
    width=16,
    problem_params=dict(slots=4),
    train_sizes=[1, 2],
    test_sizes=[2, 4],
)
# ENTP takes three times a decoder's time per step, and no schedule that fits into ``quick`` learns
# addition at its trained lengths (docs/journal), so both are trained only at ``overnight``.
TRAINED = {
    "smoke": dict(
        seeds=1,
        train=dict(steps=2, batch_size=4, warmup_steps=1, eval_every=2),
        tested=4,
        tasks={"parity": (TINY, list(ARMS))},
    ),
    "quick": dict(seeds=5, train=TRAIN, tested=40, tasks={"parity": (PARITY, DECODERS)}),
    "overnight": dict(
        seeds=5,
        train=dict(TRAIN, steps=4000, batch_size=16, eval_every=4000),
        tested=100,
        tasks={
            "parity": (PARITY, list(ARMS)),
            "shift_addition": (SHIFT, DECODERS),
            "spaced_addition": (SPACED, DECODERS),
        },
    ),
}


def plan_training(tier: str, seeds: int) -> PlannedRuns:
    """Plan every task and arm at every seed of a tier; arms of one seed see the same questions."""
    chosen = TRAINED[tier]
    for seed in range(seeds or chosen["seeds"]):
        for task, (shape, arms) in chosen["tasks"].items():
            for arm in arms:
                scratchpad, architecture = ARMS[arm]
                params = dict(
                    setting=dict(
                        problem=task, scratchpad=scratchpad, architecture=architecture, **shape
                    ),
                    train=chosen["train"],
                    tested=chosen["tested"],
                    compared=5,
                    seed=seed,
                )
                name = "scratchpad_training"  # of the experiment and of its study
                yield planned_study(
                    name,
                    tier,
                    name,
                    params,
                    seed,
                    task=task,
                    arm=arm,
                    architecture=architecture,
                    scratchpad=scratchpad,
                )


def scores_by_size(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row per run and test size, with ``beyond`` for sizes longer than any trained one."""
    table = long(records, ["size", "answers_right", "texts_right", "state_error"])
    longest = {
        record.labels["task"]: max(record.config.params["setting"]["train_sizes"])
        for record in records
    }
    return table.assign(beyond=table["size"] > table["task"].map(longest))


def scores_beyond(records: Sequence[Record]) -> pd.DataFrame:
    """Average the scores of each run over the sizes beyond the trained ones."""
    runs = scores_by_size(records).query("beyond").groupby(["task", "arm", "seed"], as_index=False)
    return runs[["answers_right", "texts_right", "state_error"]].mean()


def not_learned(records: Sequence[Record], arms: Sequence[str]) -> str:
    """Name the arms and random seeds that get fewer than half of the trained sizes right."""
    trained = scores_by_size(records).query("not beyond and arm in @arms")
    shares = trained.groupby(["arm", "seed"])["texts_right"].mean()
    poor = [f"{arm} on random seed {seed}" for arm, seed in shares.index[shares < 0.5]]
    return f"trained sizes not learned: {', '.join(poor)}" if poor else ""


NEAR = 0.05  # closer than this to no text right, or to all, counts as equal to it
PARITY_BITS = dict(task="parity")
ERRORS = Comparisons(
    (Paired("IS-soft", "state_error", "ordinary decoder", "inductive decoder", PARITY_BITS),),
    floor=1.0,
    ceiling=0.0,
    near=NEAR,
    frame=scores_beyond,
    excluded=not_learned,
)
MEASURE_TRAINING = Comparisons(
    (
        Paired("IS-parity", "texts_right", "inductive decoder", "ordinary decoder", PARITY_BITS),
        Paired(
            "IS-shift",
            "texts_right",
            "inductive decoder",
            "ordinary decoder",
            dict(task="shift_addition"),
        ),
        Paired(
            "IS-spaced",
            "texts_right",
            "inductive decoder",
            "ordinary decoder",
            dict(task="spaced_addition"),
        ),
        Paired("IS-entp", "texts_right", "inductive ENTP", "inductive decoder", PARITY_BITS),
    ),
    floor=0.0,
    near=NEAR,
    frame=scores_beyond,
    excluded=not_learned,
    others=[ERRORS],
)

SCRATCHPAD_TRAINING = Experiment(
    "scratchpad_training",
    1,
    "Inductive, ordinary and no scratchpad, tested beyond the trained lengths",
    "13_inductive_scratchpad",
    plan_training,
    MEASURE_TRAINING,
    tiers=TRAINED,
)
