"""Inductive scratchpads (Abbe et al. 2024): the exact studies of notebook 13, the trained models, and their tables."""

import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lab.comparisons import Comparisons, Paired
from entp_lab.experiment import Experiment
from entp_lab.measurements import Check
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.statistics import to_figures
from entp_lab.store import Record
from entp_lab.studies import by_study, checker, frame, long, of_study, plan_studies

NOTEBOOK = "13_inductive_scratchpad"
SCHEMES = ["learned", "rotary", "alibi", "none"]
EXACT = {"loss": 1e-10, "gradient": 1e-9, "logits": 1e-9}  # below it counts as equal, in double precision
APART = 1e-3  # above it counts as different
OTHER_LOSS = 1e-5  # nats: of losses that are equal but for rounding, to 1e-10

STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "equivalence": dict(
            schemes=["learned", "alibi"], architectures=["decoder"], most_states=3, examples=1, batches=1
        ),
        "writing": dict(schemes=["learned", "alibi"], prompts=6, longest=4, states=4, n_layers=2),
        "reuse": dict(scheme="learned", states=4, longest=2, n_layers=2, texts=1),
        "relative": dict(most_tokens=3, states=4, layers=2),
    },
    "quick": {
        "equivalence": dict(schemes=SCHEMES, architectures=["decoder", "entp"], most_states=6, examples=3, batches=20),
        "writing": dict(schemes=SCHEMES, prompts=200, longest=6, states=6, n_layers=2),
        "reuse": dict(scheme="learned", states=8, longest=5, n_layers=3, texts=40),
        "relative": dict(most_tokens=6, states=6, layers=4),
    },
}


def cost_table(records: Sequence[Record]) -> pd.DataFrame:
    """Tokens read to write a scratchpad and the largest error, by kind of model and way of reading."""
    ways = of_study(records, "reuse").metrics["ways"]
    rows = [(*name.split(", "), found["tokens_read"], found["largest_error"]) for name, found in ways.items()]
    return pd.DataFrame(rows, columns=["kind", "way", "tokens_read", "largest_error"])


def measure(records: Sequence[Record]) -> list[Check]:
    """The statements of appendices C.2 and C.3 on training, generation, caches and relative positions."""
    if not STUDIES["quick"].keys() <= by_study(records).keys():
        return []
    check, equal, relative = checker(records), frame(records, "equivalence"), of_study(records, "relative").metrics
    equal = equal[equal["architecture"] == "decoder"]
    whole, missing = equal[equal["without"] == ""], equal[equal["without"] != ""]
    missing = missing[(missing["scheme"] != "none") | (missing["without"] != "positions")]  # nothing to re-index
    relative_schemes = whole[whole["scheme"].isin(["rotary", "alibi"])]
    costs = cost_table(records).set_index(["kind", "way"])["largest_error"]["inductive decoder"]
    written = frame(records, "writing").groupby("way")
    differing, apart = written["differing_texts"].sum(), written["largest_difference"].max()

    def same_texts(way: str) -> bool:
        """Whether drawn texts and logits are those of the definition, and logits along given texts as well."""
        return differing[way] == 0 and max(apart[way], costs[way]) < EXACT["logits"]

    def same(rows: pd.DataFrame) -> bool:
        return (rows["loss"] < EXACT["loss"]).all() and (rows["gradient"] < EXACT["gradient"]).all()

    return [
        check("IS-training", "equivalence", same(whole[whole["scheme"] == "learned"])),
        check("IS-schemes", "equivalence", len(relative_schemes) > 0 and same(relative_schemes)),
        check("IS-ingredients", "equivalence", (missing["loss"] > OTHER_LOSS).all()),
        check("IS-writing", "writing reuse", same_texts("masked")),
        check("IS-caches", "writing reuse", same_texts("recomputed") and same_texts("doubled")),
        check("IS-naive", "reuse", costs["naive"] > APART),
        check("IS-question", "relative", relative["grows"]),
        check("IS-windows", "relative", relative["reach_is_window_times_layers"]),
        check("IS-distance", "relative", relative["leaks_all_but_one"] and relative["inductive_leaks"] == 0),
    ]


TITLE = "Inductive scratchpads: two ways of training, of writing and of keeping keys"
SCRATCHPAD = Experiment("scratchpad", 1, TITLE, NOTEBOOK, plan_studies("scratchpad", STUDIES), measure)

# By arm: the scratchpad and the architecture.
ARMS = {
    "inductive decoder": ("inductive", "decoder"),
    "ordinary decoder": ("ordinary", "decoder"),
    "decoder without": ("none", "decoder"),
    "inductive ENTP": ("inductive", "entp"),
}
DECODERS = [arm for arm, (_, architecture) in ARMS.items() if architecture == "decoder"]
NEAR = 0.05  # closer to no text right, or to all, counts as being there
LEARNED = 0.5  # of texts of the trained sizes; a run with fewer has not learned what longer ones would be carried from

MODEL = dict(n_layers=2, n_heads=4, width=64)
RATES = dict(max_lr=3e-3, min_lr=3e-4, warmup_steps=50, weight_decay=0.01, grad_clip=1.0)
TRAIN = dict(steps=1200, batch_size=32, **RATES, eval_every=1200)
PARITY = dict(MODEL, problem_params=dict(slots=16), train_sizes=list(range(1, 9)), test_sizes=[4, 8, 10, 12, 14, 16])
# Random digits and $ before the operands: in training, too, every character comes at every place of a state, so that
# turning an operand by one is learned for all lengths.
FIELDS = dict(most_digits=6, filling="0123456789$")
SHIFT = dict(MODEL, width=48, problem_params=FIELDS, train_sizes=[1, 2, 3], test_sizes=[2, 3, 4, 5, 6])
TINY = dict(problem_params=dict(slots=4), train_sizes=[1, 2], test_sizes=[2, 4], n_layers=2, n_heads=2, width=16)
# By tier: random seeds, schedule, questions of each test size, and by task the setting and the arms. ENTP takes three
# times a decoder's time for a step, and addition learns its trained lengths in none of the schedules that quick has
# room for (docs/journal): both wait for the night.
TRAINED: dict[str, dict[str, Any]] = {
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
        tasks={"parity": (PARITY, list(ARMS)), "shift_addition": (SHIFT, DECODERS)},
    ),
}


def plan_training(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every task and arm at every seed of a tier; arms of one seed see the same questions."""
    t, runs = TRAINED[tier], []
    cells = [(task, shape, arm) for task, (shape, arms) in t["tasks"].items() for arm in arms]
    for seed, (task, shape, arm) in itertools.product(range(seeds or t["seeds"]), cells):
        scratchpad, architecture = ARMS[arm]
        setting = dict(problem=task, scratchpad=scratchpad, architecture=architecture, **shape)
        params = dict(setting=setting, train=t["train"], tested=t["tested"], compared=5, seed=seed)
        labels = dict(task=task, arm=arm, architecture=architecture, scratchpad=scratchpad)
        study = "scratchpad_training"  # and the experiment's name
        runs.append(planned_study(study, tier, study, params, seed, **labels))
    return runs


def by_size(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run and test size: labels, answers and texts right, mean error of a state, whether it was trained."""
    table = long(records, ["size", "answers_right", "texts_right", "state_error"])
    longest = {r.labels["task"]: max(r.config.params["setting"]["train_sizes"]) for r in records}
    return table.assign(beyond=table["size"] > table["task"].map(longest))


def beyond(table: pd.DataFrame) -> pd.DataFrame:
    """A row per task and run: the means of its scores over the sizes beyond the trained ones."""
    runs = table[table["beyond"]].groupby(["task", "arm", "seed"], as_index=False)
    return runs[["answers_right", "texts_right", "state_error"]].mean()


def not_learned(records: Sequence[Record], arms: Sequence[str]) -> str:
    """The arms and random seeds that have not learned the trained sizes, which bars a comparison."""
    table = by_size(records)
    trained = table[~table["beyond"] & table["arm"].isin(arms)].groupby(["arm", "seed"])["texts_right"].mean()
    poor = [f"{arm} on random seed {seed}" for arm, seed in trained.index[trained < LEARNED]]
    return f"trained sizes not learned: {', '.join(poor)}" if poor else ""


COMPARED = dict(near=NEAR, frame=lambda records: beyond(by_size(records)), excluded=not_learned)
ORDINARY = ("inductive decoder", "ordinary decoder")
# Scores beyond the trained sizes; of the last claim errors, of which 1 is the floor and 0 the ceiling.
MEASURE_TRAINING = Comparisons(
    (
        Paired("IS-parity", "texts_right", *ORDINARY, dict(task="parity")),
        Paired("IS-shift", "texts_right", *ORDINARY, dict(task="shift_addition")),
        Paired("IS-entp", "texts_right", "inductive ENTP", "inductive decoder", dict(task="parity")),
    ),
    floor=0.0,
    others=[
        Comparisons((Paired("IS-soft", "state_error", *ORDINARY[::-1], dict(task="parity")),), 0.0, 1.0, **COMPARED)
    ],
    **COMPARED,
)
TITLE = "Inductive, ordinary and no scratchpad, tested beyond the trained lengths"
SCRATCHPAD_TRAINING = Experiment(
    "scratchpad_training", 1, TITLE, NOTEBOOK, plan_training, MEASURE_TRAINING, tiers=TRAINED
)

# --- Tables of notebook 13 -------------------------------------------------------------------------------------------

MISSING = {"": "nothing", "groups": "group mask", "positions": "re-indexed positions", "targets": "masked targets"}
EVENTS = {"token": "a token is added", "state": "a state ends"}


def equivalence_table(records: Sequence[Record]) -> pd.DataFrame:
    """Differences of chunks and duplicated states by architecture and scheme: in the loss, in the worst gradient.

    Columns: what is left out of the duplicated states. The largest of all batches where nothing is, else the smallest.
    """
    table = frame(records, "equivalence")
    table["without"] = table["without"].map(MISSING)
    wide = table.pivot(index=["architecture", "scheme"], columns="without", values=["loss", "gradient"])
    order = [("loss", "gradient"), list(MISSING.values())]
    return wide.reindex(columns=pd.MultiIndex.from_product(order, names=["difference of", "without"]))


def reuse_table(records: Sequence[Record]) -> pd.DataFrame:
    """Number of the first layers that keep their keys and values, of how many, by kind of model, event and part (X8).

    Empty where the model has let go of that part, or never had it.
    """
    study = of_study(records, "reuse")
    table = pd.DataFrame(study.curves)
    table["kept"] = [f"{kept} of {study.metrics['layers']}" for kept in table["layers_kept"]]
    table["event"] = table["event"].map(EVENTS)
    wide = table.pivot(index="kind", columns=["event", "part"], values="kept").fillna("")
    return wide.loc[table["kind"].unique()]


def trained_ways(records: Sequence[Record]) -> pd.DataFrame:
    """Greedy writing with trained inductive decoders, by task: texts, how many differ between ways, logits.

    Then the tokens read in each way, on the questions of trained sizes that were compared.
    """
    ways = pd.json_normalize([{"task": r.labels["task"], **r.metrics["ways"]} for r in records if "ways" in r.metrics])
    ways = ways.rename(columns=lambda name: name.removeprefix("tokens_read."))
    how = {"texts": "sum", "differing_texts": "sum", "largest_difference": "max"}
    how |= {way: "sum" for way in ways if way not in ("task", *how)}
    return ways.groupby("task", sort=False).agg(how).rename_axis(None).map(to_figures)


def errors_by_state(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run and state of the longest questions: how often it is wrong when all states before it are right.

    ``beyond``: the state's number is one that no scratchpad in training had. Runs without a scratchpad are left out.
    """
    with_states = [r for r in records if r.labels["scratchpad"] != "none"]
    table = long(with_states, ["state", "error_by_state"]).rename(columns={"error_by_state": "error"})
    sizes = {r.labels["task"]: r.config.params["setting"] for r in with_states}
    longer = {task: max(setting["test_sizes"]) - max(setting["train_sizes"]) for task, setting in sizes.items()}
    trained = table.groupby("task")["state"].transform("max") - table["task"].map(longer)
    return table.assign(beyond=table["state"] > trained)
