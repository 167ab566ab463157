"""The primer on encoders and decoders: the exact studies of notebook 14, the trained models by tier, and verdicts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from entp_lib.collection.experiment import Experiment, PlannedRun, name_of, planned_study, select
from entp_lib.collection.measurements import Check, Level, Measurement
from entp_lib.config import StudyConfig
from entp_lib.runs.records import Record

NOTEBOOK = "14_encoder_vs_decoder"
EXACT, PARITY, APART, SIGMAS = 1e-10, 1e-6, 1e-3, 4.0  # equal, equal to a library, different; of a rate

STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "bugs": dict(),
        "parity": dict(libraries=["torch"]),
        "masking": dict(tokens=20_000, libraries=[]),
        "losses": dict(seeds=2),
        "sampling": dict(draws=2000, top_k=2),
        "caches": dict(depths=[1, 2], length=6, seeds=1),
        "costs": dict(lengths=[4, 8], far=[2**10, 2**11], n_layers=2, width=8, rounds=1),
        "permutations": dict(depths=[1, 2], length=6, orders=3),
        "coordinates": dict(constants=[5.0, 60.0], lengths=[6], n_layers=2),
    },
    "quick": {
        "bugs": dict(),
        "parity": dict(libraries=["torch", "transformers"]),
        "masking": dict(tokens=1_000_000, libraries=["transformers"]),
        "losses": dict(seeds=20),
        "sampling": dict(draws=100_000, top_k=2),
        "caches": dict(depths=[1, 2, 3], length=12, seeds=10),
        "costs": dict(lengths=[32, 64, 128, 256, 512], far=[2**14, 2**15], n_layers=2, width=32, rounds=3),
        "permutations": dict(depths=[1, 2, 3], length=12, orders=20),
        "coordinates": dict(constants=[5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 100.0], lengths=[8, 16], n_layers=3),
    },
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The exact studies; ``seeds`` changes nothing, since they draw their own weights and texts."""
    return [
        planned_study(StudyConfig("encoder_decoder", tier, f"encoder_decoder_{study}", params))
        for study, params in STUDIES.get(tier, {}).items()
    ]


def of_study(records: Sequence[Record], study: str) -> Record:
    """The record of a study, named without ``encoder_decoder_``. KeyError where it is not there."""
    found = select(records, study=f"encoder_decoder_{study}")
    if not found:
        raise KeyError(f"no record of the study {study!r}")
    return found[0]


def frame(records: Sequence[Record], study: str) -> pd.DataFrame:
    """A study's curves, a row per case."""
    return pd.DataFrame(of_study(records, study).curves)


def visible_pairs(influence: dict[str, list[list[float]]]) -> bool:
    """Whether tokens that move others' states, in attention without a mask and causal, are N² and N (N + 1) / 2."""
    seen = {name: np.array(influence[name]) > EXACT for name in ("corrected", "causal")}
    n = len(seen["causal"])
    return seen["corrected"].sum() == n * n and seen["causal"].sum() == n * (n + 1) // 2


def measure(records: Sequence[Record]) -> list[Check]:
    """What the primer states of attention, masks, batches, losses, caches and costs."""
    if len(records) < len(STUDIES["quick"]):
        return []
    tier, m = records[0].config.tier, {name: of_study(records, name).metrics for name in STUDIES["quick"]}
    bugs, caches = frame(records, "bugs"), frame(records, "caches").set_index(["architecture", "n_layers"])["apart"]
    told = bugs.groupby("bug")["told_apart"]
    apart, alike = told.all(), ~told.any()  # in every case, in none
    slopes, encoder = m["costs"]["slopes"], caches["entp"]

    def check(claim: str, holds: bool, study: str, corrected: bool | None = None, words: str = "", **more) -> Check:
        right = None if corrected is None else bool(corrected)
        return Check(claim, bool(holds), tier, right, words, (name_of(of_study(records, study)),), **more)

    masking, losses = m["masking"], m["losses"]
    never = ("special_selected", "unselected_changed", "labels_not_the_original")
    return [
        check("ED-all-tokens", alike["B1"], "bugs", apart["B1"] and apart["B3"], "with heads before tokens"),
        check("ED-past", alike["B2"], "bugs", apart["B2"], "on scores between tokens"),
        check("ED-cache", alike["B6"], "bugs", apart["B6"], "with layers, places, a type, and more than one token"),
        check("ED-layers", m["parity"]["largest_difference"] < PARITY, "parity"),
        check(
            "ED-mlm",
            masking["largest_sigma"] < SIGMAS and not any(masking[name] for name in never),
            "masking",
            remark="special tokens are neither to be selected nor to be drawn",
        ),
        check("ED-causal-loss", losses["largest"] < EXACT, "losses", remark="NaN where all labels are ignored"),
        check("ED-sampling", frame(records, "sampling")["right"].all(), "sampling"),
        check(
            "ED-cache-decoder",
            caches["decoder"].max() < EXACT and encoder[1] < EXACT and encoder[encoder.index > 1].min() > APART,
            "caches",
        ),
        check("ED-triangle", visible_pairs(m["bugs"]["influence"]), "bugs", remark="N (N + 1) / 2"),
        check(
            "ED-training-cost",
            1.9 < m["costs"]["one_pass"] <= 2,
            "costs",
            remark="the linear maps, 12 N d², are more up to N = 6 d",
        ),
        check(
            "ED-encoder-time",
            m["costs"]["one_pass"] < 0.1,
            "costs",
            m["costs"]["one_pass"] > 1.9,
            "in one pass, whose work grows with n and n²",
        ),
        check(
            "ED-decoder-time",
            slopes["decoder, cache"]["counted"] < 1.1,
            "costs",
            1.9 < slopes["decoder, cache"]["counted"] <= 2,
            "linear while linear maps outweigh attention, quadratic beyond",
        ),
    ]


ENCODER_DECODER = Experiment(
    name="encoder_decoder",
    version=1,
    title="Encoder and decoder: the primer's bugs, its parts rightly built, costs",
    notebook=NOTEBOOK,
    plan=plan,
    measure=measure,
    jobs=1,  # CPU time is measured
)

# By arm: the objective, and how many positions of a window ENTP is scored at; with 2 of 32 it sends as many tokens
# through the stack as the others.
ARMS = {
    "masked": ("masked", "many"),
    "causal": ("causal", "many"),
    "ENTP": ("entp", "many"),
    "ENTP, equal token-forwards": ("entp", "few"),
}
EMBEDDED = dict(corpus="embedded", checksum="0cd7320f118b0da6")  # documentation of the versions in requirements.txt
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        text=dict(corpus="README.md", split="tail", held_out=0.1, context=8),
        prefixes=dict(many=4, few=2),
        setting=dict(n_layers=2, n_heads=2, width=16, labelled=16, epochs=1, tested=16, curve_windows=8, candidates=2),
        train=dict(steps=4, batch_size=8, warmup_steps=1, eval_every=2),
        seeds=1,
    ),
    "quick": dict(
        text=dict(**EMBEDDED, context=32),
        prefixes=dict(many=8, few=2),
        setting=dict(
            n_layers=2,
            n_heads=4,
            width=64,
            positions="rotary",  # with learned ones a masked model does not leave the unigram loss in these steps
            labelled=1024,
            epochs=4,
            tested=512,
            curve_windows=128,
            candidates=32,
        ),
        train=dict(
            steps=500,
            batch_size=32,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=50,
            grad_clip=1.0,
            eval_every=100,
        ),
        seeds=5,
    ),
}
DISTANCE = {"nats": 0.1, "share": 0.03}  # closer than that to guessing counts as having learned nothing


def plan_objectives(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every arm at every seed, which share windows, initial weights and misprints."""
    if tier not in TIERS:
        return []
    t, runs = TIERS[tier], []
    for seed in range(seeds or t["seeds"]):
        for arm, (objective, scored) in ARMS.items():
            text = dict(t["text"], prefixes=t["prefixes"][scored])
            params = dict(
                setting=dict(objective=objective, text=text, **t["setting"]),
                train_config=t["train"],
                model_seed=seed,
                data_seed=seed,
            )
            config = StudyConfig("objectives", tier, "encoder_decoder_objective", params, seed, seed)
            runs.append(planned_study(config, arm=arm, objective=objective))
    return runs


def table(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run: labels, scores and costs."""
    return pd.DataFrame(
        {**r.labels, **{k: v for k, v in r.metrics.items() if isinstance(v, (int, float)) or v is None}}
        for r in records
    )


def long(records: Sequence[Record], columns: Sequence[str]) -> pd.DataFrame:
    """Curves of equal length, a row per run and point."""
    return pd.concat(
        [pd.DataFrame({**r.labels, **{c: r.curves[c] for c in columns}}) for r in records], ignore_index=True
    )


def measure_objectives(records: Sequence[Record]) -> list[Measurement]:
    """Next token, a token in the middle and misprints, paired by seed."""
    if not records:
        return []
    rows, tier = table(records), records[0].config.tier
    length = records[0].config.params["setting"]["text"]["context"] + 1

    def compare(claim: str, first: tuple[str, str], second: tuple[str, str], scale: str) -> Measurement:
        sides = [rows[rows["arm"] == arm].set_index("seed")[metric].astype(float) for arm, metric in (first, second)]
        floor, ceiling = (rows["unigram"].mean(), 0.0) if scale == "nats" else (1 / length, 1.0)
        stand = tuple(Level(float(s.mean()), floor, ceiling, DISTANCE[scale]) for s in sides)
        ids = tuple(name_of(r) for r in select(records, arm=(first[0], second[0])))
        return Measurement(claim, (sides[0] - sides[1]).dropna().tolist(), tier, ids, levels=stand)

    def loss(claim: str, first: str, second: str) -> Measurement:
        return compare(claim, (first, "next_token_loss"), (second, "next_token_loss"), "nats")

    return [
        loss("ED-next-token", "masked", "causal"),
        compare("ED-both-sides", ("causal", "middle_loss"), ("masked", "middle_loss"), "nats"),
        compare("ED-classification", ("masked", "accuracy"), ("causal", "accuracy"), "share"),
        loss("ED-entp-next", "ENTP", "causal"),
        loss("ED-entp-compute", "ENTP, equal token-forwards", "causal"),
        loss("ED-entp-masked", "ENTP, equal token-forwards", "masked"),
        compare("ED-bayes", ("causal", "candidate_loss"), ("masked", "middle_loss_few"), "nats"),
    ]


OBJECTIVES = Experiment(
    name="objectives",
    version=1,
    title="Masked, causal and ENTP's training of one backbone on one text",
    notebook=NOTEBOOK,
    plan=plan_objectives,
    measure=measure_objectives,
)
