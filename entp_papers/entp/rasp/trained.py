"""Decoders trained on Count3: with a chain of thought or at once (Remark 6.4), and of several
depths (§6.1).

By Lemma 6.2 the necessary depth grows linearly with n, given Conjecture 6.1, which is false as
stated. Trained accuracy can neither prove nor refute the lemma: it shows what a few layers learn on
short sequences.
"""

from dataclasses import replace
from functools import partial

import pandas as pd

from entp_lab.experiment import Arm, Experiment, Plan, PlannedRuns, Tier, Variant, run_of, twins
from entp_lab.frames import paired, select, summary
from entp_lab.measurements import Comparisons, Findings, Paired, measured
from entp_lab.store import Records
from entp_lib.config import SIZES, TrainConfig
from entp_papers.entp.count3 import REDUCED, above_mode
from entp_papers.entp.pairless import no_pairs_found, within

NEAR = 0.02  # in accuracy: closer to the baseline, or to 1, counts as equal to it
# the direct answer's rows are a third as long as the trace's: both process the same number of
# tokens
MORE_STEPS = 3
SHALLOW = 2
SMOKE = TrainConfig(
    10, 16, warmup_steps=2, eval_every=5, eval_sequences=32, final_eval_sequences=64
)
QUICK = replace(REDUCED, steps=3000, eval_every=150)
GPU = TrainConfig(10_000, decay_steps=10_000, eval_every=250, precision="bf16")
PAPER = TrainConfig(100_000, eval_every=500, precision="bf16")
MEDIUM = SIZES["medium"]
CHAINS = {
    "smoke": Tier(
        dict(longest=3, symbols=4), dict(n_layers=2, n_heads=2, width=16), SMOKE, 2, by_seed=True
    ),
    "quick": Tier(
        dict(longest=5, symbols=8), dict(n_layers=3, n_heads=4, width=64), QUICK, 5, by_seed=True
    ),
    "gpu": Tier(dict(longest=16, symbols=16), MEDIUM, GPU, 5, by_seed=True),
    "paper": Tier(dict(longest=64, symbols=64), MEDIUM, PAPER, 5, by_seed=True),
}
# By tier: a length, its several depths, and other lengths, which have ``SHALLOW`` layers only.
BRIEF = replace(QUICK, steps=600, max_lr=2e-3, min_lr=2e-4, eval_every=60)
DEPTHS = {
    "smoke": (6, (1, 2), (5,), Tier({}, dict(width=16, n_heads=2), SMOKE, 2)),
    "quick": (10, (1, 2, 4, 8, 12), (6, 8, 14), Tier({}, dict(width=64, n_heads=4), BRIEF, 5)),
    "gpu": (64, (1, 2, 4, 8, 12), (16, 32), Tier({}, dict(width=192, n_heads=3), GPU, 5)),
    "paper": (
        64,
        (1, 2, 3, 6, 12, 24),
        (24, 32, 48),
        Tier({}, dict(width=384, n_heads=6), PAPER, 5),
    ),
}


def chain_table(records: Records) -> pd.DataFrame:
    """Return ``summary`` with ``baseline_answer``, how often the most frequent answer is right.

    Its ``sequence_accuracy`` is a lower bound on greedy decoding's right answers: a trace counts
    only if every token of it is right, but one with an error may still end in the right answer.
    """
    found = summary(records)
    found["baseline_answer"] = found.loc[
        found["arm"] == "direct", "baseline_sequence_accuracy"
    ].mean()
    return found


def plan_depths(tier: str, seeds: int) -> PlannedRuns:
    """Plan decoders of every depth at the tier's length, and of ``SHALLOW`` layers at the
    others.
    """
    length, depths, lengths, setting = DEPTHS[tier]
    for n, layers in [(length, depth) for depth in depths] + [(n, SHALLOW) for n in lengths]:
        params = dict(length=n, seed_length=16 if n > 16 else 4, symbols=n, held_out=0.2)
        base = run_of(
            "depth", tier, "counting", params, {"n_layers": layers, **setting.model}, setting.train
        )
        yield from twins(base, ("decoder",), seeds or setting.seeds, length=n, layers=layers)


def depth_tables(records: Records) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``summary`` with the accuracy above the baseline, in two tables.

    The first is of the length that has several depths, the second of all lengths at ``SHALLOW``.
    """
    found = summary(records)
    found["above_baseline"] = found["token_accuracy"] - found["baseline_token_accuracy"]
    deep = found["length"] == found.groupby("length")["layers"].nunique().idxmax()
    return found[deep], found[found["layers"] == SHALLOW]


def measure_depths(records: Records) -> Findings:
    """Measure the deepest − two-layer decoders' token accuracy, which does not settle Lemma 6.2."""
    deep, _ = depth_tables(records)
    if SHALLOW not in set(deep["layers"]):
        return
    arms = (int(deep["layers"].max()), SHALLOW)  # with one layer it is ENTP, too
    table = deep.assign(arm=deep["layers"])
    gain = paired(table, "token_accuracy", *arms)
    used = select(records, length=int(deep["length"].iloc[0]), layers=arms)
    sides = above_mode(table, arms, NEAR)
    config = used[0].config
    barred = within([side.score for side in sides], config.task, config.task_params)
    yield measured("6.2-depth", gain, used, levels=sides, excluded_because=barred)


ARMS = {"trace": Arm("decoder"), "direct": Arm("decoder", lambda entp, own: MORE_STEPS)}
PLAN = Plan(
    "chain_of_thought",
    "chain",
    CHAINS,
    ARMS,
    {arm: Variant(dict(scored=arm), (arm,)) for arm in ARMS},
)
CHAIN_OF_THOUGHT = Experiment(
    "chain_of_thought",
    1,
    "Count3 with and without a chain of thought",
    "04_rasp",
    PLAN,
    # whether the way out of Lemma 6.2 works when it is trained (Remark 6.4)
    Comparisons(
        [Paired("6.4-trained", "sequence_accuracy", "trace", "direct")],
        floor="baseline_answer",
        near=NEAR,
        frame=chain_table,
        excluded=partial(no_pairs_found, metric="sequence_accuracy"),  # answers are whole sequences
    ),
)
DEPTH = Experiment(
    "depth", 1, "Depth of a decoder on Count3", "04_rasp", plan_depths, measure_depths, tiers=DEPTHS
)
