"""Tiers of the addition experiments: training-set sizes, arms, models and schedules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from entp_lib.config import SIZES, TrainConfig
from entp_lib.experiments.budgets import EQUAL_FORWARDS
from entp_lib.experiments.plans import PlannedRun, planned, run_of, with_model
from entp_lib.tasks import build_task
from entp_lib.tasks.addition import Sums

ARMS = {"decoder": "decoder", "entp": "ENTP", EQUAL_FORWARDS: "decoder, equal token-forwards"}
PAPER_SIZES = (1250, 2500, 3750, 5000, 10_000, 15_000, 20_000)
# Token-forwards of ENTP over a decoder's on rows scored on their answer, by the largest operand.
ANSWER_RATIOS = {99: 2.7, 999: 3.45}


@dataclass(frozen=True)
class Block:
    """Runs with one model and schedule: every seed, task (a dict of its parameters) and arm.

    ``model``: a name in ``SIZES``, or layers/heads/width. ``longer_eval_every``: steps between the evaluations of the
    decoder at equal token-forwards; without it, as many evaluations as the others have.
    """

    tasks: Sequence[dict]
    arms: Sequence[str]
    model: str
    train: TrainConfig
    seeds: int = 5
    longer_eval_every: int | None = None

    @property
    def shape(self) -> dict[str, int]:
        if self.model in SIZES:
            return SIZES[self.model]
        return dict(zip(("n_layers", "n_heads", "width"), map(int, self.model.split("/")), strict=True))


def sizes(n_train: Sequence[int], reversed_answer: bool, **others) -> list[dict]:
    """The task at several training-set sizes."""
    return [dict(n_train=n, reversed_answer=reversed_answer, **others) for n in n_train]


SMOKE = TrainConfig(steps=4, batch_size=8, warmup_steps=1, eval_every=2, eval_sequences=32, final_eval_sequences=100)
QUICK = TrainConfig(
    steps=900,
    batch_size=64,
    max_lr=5e-3,
    min_lr=5e-4,
    betas=(0.9, 0.95),
    warmup_steps=100,
    eval_every=90,
    eval_sequences=500,
    final_eval_sequences=4000,
)
OVERNIGHT = TrainConfig(steps=3000, warmup_steps=100, eval_every=50, eval_sequences=500, final_eval_sequences=10_000)
GPU = TrainConfig(
    steps=2000,
    batch_size=256,
    max_lr=1e-3,
    min_lr=1e-4,
    warmup_steps=100,
    precision="bf16",
    eval_every=50,
    eval_sequences=2000,
    final_eval_sequences=20_000,
)
# The authors stop ten evaluations after the lowest loss of whole texts. That checkpoint is kept here too, and the run
# goes on, without which no other rule, and no decoder at equal token-forwards, would have a fair share of the steps.
PAPER = TrainConfig(
    steps=8000,
    decay_steps=5000,
    warmup_steps=100,
    precision="bf16",
    eval_every=100,
    eval_sequences=10_000,
    final_eval_sequences=70_000,
)
QUICK_SIZES = (300, 900, 2700)
SMALL_2 = "2/4/64"
TIERS = {
    "smoke": (
        Block(sizes((200, 400), True, largest=99), tuple(ARMS), "2/2/16", SMOKE, 2),
        Block(sizes((200,), False, largest=99), ("decoder", "entp"), "2/2/16", SMOKE, 2),
    ),
    "quick": (
        Block(sizes(QUICK_SIZES, True, largest=99), ("decoder", "entp"), SMALL_2, QUICK),
        Block(sizes((900,), True, largest=99), (EQUAL_FORWARDS,), SMALL_2, QUICK),
        Block(sizes((300, 900), False, largest=99), ("decoder", "entp"), SMALL_2, QUICK),
    ),
    # The paper's task and model, answers alone, at three of its sizes and 3,000 steps of its schedule.
    "overnight": (
        Block(sizes((1250, 2500, 5000), True), ("decoder", "entp"), "small", OVERNIGHT),
        Block(sizes((1250, 2500), True), (EQUAL_FORWARDS,), "small", OVERNIGHT),
        Block(sizes((2500,), False), ("decoder", "entp"), "small", OVERNIGHT),
    ),
    # Meant for half an hour of one data-centre GPU; Medium where the authors' logs have its gap close and turn.
    "gpu": (
        Block(sizes(PAPER_SIZES, True), ("decoder", "entp"), "small", GPU),
        Block(sizes((2500, 10_000, 20_000), True), (EQUAL_FORWARDS,), "small", GPU),
        Block(sizes((2500, 10_000, 20_000), False), ("decoder", "entp"), "small", GPU),
        Block(sizes((2500, 10_000, 20_000), True), ("decoder", "entp"), "medium", GPU),
    ),
    "paper": (
        Block(sizes(PAPER_SIZES, True, view="windows"), tuple(ARMS), "small", PAPER),
        Block(sizes(PAPER_SIZES, False, view="windows"), ("decoder", "entp"), "small", PAPER),
        Block(sizes(PAPER_SIZES, True, view="windows"), ("decoder", "entp"), "medium", PAPER),
        Block(sizes(PAPER_SIZES, False, view="windows"), ("decoder", "entp"), "medium", PAPER),
    ),
}
# The authors' task where the runs above have a smaller one: a single size, to have something to put beside their logs.
TO_999 = {
    "smoke": (Block(sizes((200,), True), ("decoder", "entp"), "2/2/16", SMOKE, 2),),
    "quick": (
        Block(sizes((5000,), True), ("decoder", "entp"), SMALL_2, replace(QUICK, steps=1000, eval_every=100), 3),
    ),
}


def runs_of(experiment: str, tier: str, task_name: str, blocks: Sequence[Block], seeds: int) -> list[PlannedRun]:
    """The runs of ``blocks``, seeds outermost, so that what a time limit leaves is paired.

    Labels: ``arm``, ``model``, ``format`` of the answer (reversed or plain), and ``n_train``.
    """
    runs = []
    for seed in range(seeds or max((block.seeds for block in blocks), default=0)):
        for block in blocks:
            for params in block.tasks:
                params = {**params, "split_seed": seed}
                base = run_of(experiment, tier, task_name, params, block.shape, block.train, seed=seed)
                task = build_task(task_name, params)
                form = "reversed" if task.reversed_answer else "plain"
                labels = {"n_train": task.n_train, "model": block.model, "format": form}
                for arm in block.arms:
                    config = with_model(base, architecture="decoder" if arm == EQUAL_FORWARDS else arm)
                    if arm == EQUAL_FORWARDS:
                        longer = block.train.lengthened(ratio_of(task), block.longer_eval_every)
                        config = replace(config, train=longer)
                    runs.append(planned(config, arm=arm, **labels))
    return runs


def ratio_of(task: Sums) -> float:
    """Token-forwards of an ENTP step over those of a decoder's: T + 1 over 2 where every character is scored."""
    return (task.window + 1) / 2 if task.view == "windows" else ANSWER_RATIOS[task.largest]
