"""Inductive scratchpads (Abbe et al. 2024): the exact studies of notebook 13 and the trained models, by tier."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, name_of, planned_study, select
from entp_lib.experiments.frames import levels, paired
from entp_lib.experiments.measurements import Check, Measurement
from entp_lib.records.store import Record

NOTEBOOK = "13_inductive_scratchpad"
SCHEMES = ["learned", "rotary", "alibi", "none"]
EXACT = {"loss": 1e-10, "gradient": 1e-9, "logits": 1e-9}  # what counts as equal, in double precision
APART = 1e-3  # what counts as different
OTHER_LOSS = 1e-5  # nats: of losses that are equal but for rounding, to 1e-10

STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "scratchpad_equivalence": dict(
            schemes=["learned", "alibi"], architectures=["decoder"], most_states=3, examples=1, batches=1
        ),
        "scratchpad_writing": dict(schemes=["learned", "alibi"], prompts=6, longest=4, states=4, n_layers=2),
        "scratchpad_reuse": dict(scheme="learned", states=4, longest=2, n_layers=2, texts=1),
        "scratchpad_relative": dict(most_tokens=3, states=4, layers=2),
    },
    "quick": {
        "scratchpad_equivalence": dict(
            schemes=SCHEMES, architectures=["decoder", "entp"], most_states=6, examples=3, batches=20
        ),
        "scratchpad_writing": dict(schemes=SCHEMES, prompts=200, longest=6, states=6, n_layers=2),
        "scratchpad_reuse": dict(scheme="learned", states=8, longest=5, n_layers=3, texts=40),
        "scratchpad_relative": dict(most_tokens=6, states=6, layers=4),
    },
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The exact studies; ``seeds`` changes nothing, since they draw their own weights and texts."""
    found = STUDIES.get(tier, {}).items()
    return [planned_study(StudyConfig("scratchpad", tier, study, params)) for study, params in found]


def frame(records: Sequence[Record], study: str) -> pd.DataFrame:
    """A study's curves, a row per case; ``study`` without ``scratchpad_``. KeyError where it is not there."""
    return pd.DataFrame(of_study(records, study).curves)


def of_study(records: Sequence[Record], study: str) -> Record:
    """The record of a study, named without ``scratchpad_``. KeyError where it is not there."""
    found = select(records, study=f"scratchpad_{study}")
    if not found:
        raise KeyError(f"no record of the study {study!r}")
    return found[0]


def cost_table(records: Sequence[Record]) -> pd.DataFrame:
    """Tokens read to write a scratchpad and the largest error, by kind of model and way of reading."""
    ways = of_study(records, "reuse").metrics["ways"]
    rows = [(*name.split(", "), found["tokens_read"], found["largest_error"]) for name, found in ways.items()]
    return pd.DataFrame(rows, columns=["kind", "way", "tokens_read", "largest_error"])


def measure(records: Sequence[Record]) -> list[Check]:
    """What appendices C.2 and C.3 state of training, generation, caches and relative positions."""
    found = {record.config.study.removeprefix("scratchpad_"): record for record in records}
    if not {"equivalence", "writing", "reuse", "relative"} <= set(found):
        return []
    tier = records[0].config.tier
    equal, relative = frame(records, "equivalence"), found["relative"].metrics
    equal = equal[equal["architecture"] == "decoder"]
    whole, missing = equal[equal["without"] == ""], equal[equal["without"] != ""]
    missing = missing[(missing["scheme"] != "none") | (missing["without"] != "positions")]  # nothing to re-index
    costs = cost_table(records).set_index(["kind", "way"])["largest_error"]["inductive decoder"]
    written = frame(records, "writing")

    def check(claim: str, holds: bool, *studies: str) -> Check:
        return Check(claim, bool(holds), tier, records=tuple(name_of(found[study]) for study in studies))

    def same_texts(way: str) -> bool:
        """Whether drawn texts and logits are those of the definition, and logits along given texts as well."""
        rows = written[written["way"] == way]
        apart = max(rows["largest_difference"].max(), costs[way])
        return bool(rows["differing_texts"].sum() == 0 and apart < EXACT["logits"])

    def same(rows: pd.DataFrame) -> bool:
        return bool((rows["loss"] < EXACT["loss"]).all() and (rows["gradient"] < EXACT["gradient"]).all())

    relative_schemes = whole[whole["scheme"].isin(["rotary", "alibi"])]
    return [
        check("IS-training", same(whole[whole["scheme"] == "learned"]), "equivalence"),
        check("IS-schemes", len(relative_schemes) > 0 and same(relative_schemes), "equivalence"),
        check("IS-ingredients", (missing["loss"] > OTHER_LOSS).all(), "equivalence"),
        check("IS-writing", same_texts("masked"), "writing", "reuse"),
        check("IS-caches", same_texts("recomputed") and same_texts("doubled"), "writing", "reuse"),
        check("IS-naive", costs["naive"] > APART, "reuse"),
        check("IS-question", relative["grows"], "relative"),
        check("IS-windows", relative["reach_is_window_times_layers"], "relative"),
        check("IS-distance", relative["leaks_all_but_one"] and relative["inductive_leaks"] == 0, "relative"),
    ]


SCRATCHPAD = Experiment(
    name="scratchpad",
    version=1,
    title="Inductive scratchpads: two ways of training, of writing and of keeping keys",
    notebook=NOTEBOOK,
    plan=plan,
    measure=measure,
)

ARMS = {
    "inductive decoder": ("inductive", "decoder"),
    "ordinary decoder": ("ordinary", "decoder"),
    "decoder without": ("none", "decoder"),
    "inductive ENTP": ("inductive", "entp"),
}
NEAR = 0.05  # closer to no text right, or to all, counts as being there
LEARNED = 0.5  # of texts of the trained sizes; a run with fewer has not learned what longer ones would be carried from

TINY_MODEL = dict(n_layers=2, n_heads=2, width=16)
SMALL_MODEL = dict(n_layers=2, n_heads=4, width=64)
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
# By tier and task: its parameters, the sizes of training and of tests, the arms.
PARITY = dict(
    params=dict(slots=16),
    train_sizes=list(range(1, 9)),
    test_sizes=[4, 8, 10, 12, 14, 16],
    model=SMALL_MODEL,
    tested=40,
)
# Random digits and $ before the operands: in training, too, every character stands at every place of a state, so that
# turning an operand by one is learned for all lengths.
SHIFT = dict(
    params=dict(most_digits=6, filling="0123456789$"),
    train_sizes=[1, 2, 3],
    test_sizes=[2, 3, 4, 5, 6],
    model=dict(SMALL_MODEL, width=48),
    tested=40,
)
DECODERS = [arm for arm, (_, architecture) in ARMS.items() if architecture == "decoder"]
# ENTP takes three times a decoder's time for a step, and addition learns its trained lengths in none of the schedules
# that quick has room for (docs/journal): both wait for the night.
TRAINED: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "parity": dict(
            params=dict(slots=4), train_sizes=[1, 2], test_sizes=[2, 4], model=TINY_MODEL, tested=4, arms=list(ARMS)
        ),
    },
    "quick": {"parity": dict(PARITY, arms=DECODERS)},
    "overnight": {
        "parity": dict(PARITY, arms=list(ARMS), tested=100),
        "shift_addition": dict(SHIFT, arms=DECODERS, tested=100),
    },
}
SCHEDULES = {
    "smoke": dict(steps=2, batch_size=4, warmup_steps=1, eval_every=2),
    "quick": TRAIN,
    "overnight": dict(TRAIN, steps=4000, batch_size=16, eval_every=4000),
}
SEEDS = {"smoke": 1, "quick": 5, "overnight": 5}


def plan_training(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every task and arm at every seed of a tier; arms of one seed see the same questions."""
    runs = []
    for seed in range(seeds or SEEDS.get(tier, 0)):
        for task, of_task in TRAINED.get(tier, {}).items():
            for arm in of_task["arms"]:
                scratchpad, architecture = ARMS[arm]
                setting = dict(
                    problem=task,
                    problem_params=of_task["params"],
                    scratchpad=scratchpad,
                    architecture=architecture,
                    train_sizes=of_task["train_sizes"],
                    test_sizes=of_task["test_sizes"],
                    **of_task["model"],
                )
                params = dict(setting=setting, train=SCHEDULES[tier], tested=of_task["tested"], compared=5, seed=seed)
                config = StudyConfig("scratchpad_training", tier, "scratchpad_training", params, seed, seed)
                labels = dict(task=task, arm=arm, architecture=architecture, scratchpad=scratchpad)
                runs.append(planned_study(config, **labels))
    return runs


def by_size(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run and test size: labels, answers and texts right, mean error of a state, whether it was trained."""
    columns, parts = ("size", "answers_right", "texts_right", "state_error"), []
    for r in records:
        longest = max(r.config.params["setting"]["train_sizes"])
        part = pd.DataFrame({**r.labels, **{c: r.curves[c] for c in columns}})
        parts.append(part.assign(beyond=part["size"] > longest))
    return pd.concat(parts, ignore_index=True)


def beyond(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """A row per run of a task: the means of its scores over the sizes beyond the trained ones."""
    rows = table[(table["task"] == task) & table["beyond"]]
    return rows.groupby(["arm", "seed"], as_index=False)[["answers_right", "texts_right", "state_error"]].mean()


def not_learned(table: pd.DataFrame, task: str, arms: Sequence[str]) -> str:
    """Which of the arms have not learned the trained sizes of a task, and on which random seeds: a bar, or empty."""
    rows = table[(table["task"] == task) & ~table["beyond"] & table["arm"].isin(arms)]
    right = rows.groupby(["arm", "seed"])["texts_right"].mean()
    found = [f"{arm} on random seed {seed}" for arm, seed in right.index[right < LEARNED]]
    return f"trained sizes not learned: {', '.join(found)}" if found else ""


def measure_training(records: Sequence[Record]) -> list[Measurement]:
    """Scores beyond the trained sizes, inductive against ordinary, and ENTP against the decoder, paired by seed."""
    if not records:
        return []
    table, tier = by_size(records), records[0].config.tier

    def compare(claim: str, task: str, metric: str, first: str, second: str) -> list[Measurement]:
        rows = beyond(table, task)
        if not {first, second} <= set(rows["arm"]):
            return []
        ends = (1.0, 0.0) if metric == "state_error" else (0.0, 1.0)
        stand = levels(rows, metric, (first, second), floor=ends[0], ceiling=ends[1], distance=NEAR)
        ids = tuple(name_of(r) for r in select(records, task=task, arm=(first, second)))
        bar = not_learned(table, task, (first, second))
        return [Measurement(claim, paired(rows, metric, first, second).tolist(), tier, ids, False, stand, bar)]

    inductive, ordinary = "inductive decoder", "ordinary decoder"
    return [
        *compare("IS-parity", "parity", "texts_right", inductive, ordinary),
        *compare("IS-shift", "shift_addition", "texts_right", inductive, ordinary),
        *compare("IS-soft", "parity", "state_error", ordinary, inductive),
        *compare("IS-entp", "parity", "texts_right", "inductive ENTP", inductive),
    ]


SCRATCHPAD_TRAINING = Experiment(
    name="scratchpad_training",
    version=1,
    title="Inductive, ordinary and no scratchpad, tested beyond the trained lengths",
    notebook=NOTEBOOK,
    plan=plan_training,
    measure=measure_training,
)
