"""The primer on encoders and decoders: the exact studies of notebook 14, the trained models, verdicts and pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.experiment import Experiment
from entp_lab.measurements import Check, Level, Measurement
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.store import Record
from entp_lab.studies import by_study, checker, frame, long, names_of, plan_studies
from entp_lab.studies import flat as table
from entp_lab.studies import of_study as of_study

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


# Corrections of what is printed.
CACHE = "with layers, places, a type, and more than one token"
ENCODER_TIME = "in one pass, whose work grows with n and n²"
DECODER_TIME = "linear while linear maps outweigh attention, quadratic beyond"
LINEAR_MAPS = "the linear maps, 12 N d², are more up to N = 6 d"


def measure(records: Sequence[Record]) -> list[Check]:
    """The primer's statements on attention, masks, batches, losses, caches and costs."""
    if len(records) < len(STUDIES["quick"]):
        return []
    check, m = checker(records), {name: record.metrics for name, record in by_study(records).items()}
    differ = frame(records, "bugs").groupby("bug")["told_apart"]
    every, some = differ.all(), differ.any()  # of the cases of a bug, does the check tell printed from corrected
    caches = frame(records, "caches").set_index(["architecture", "n_layers"])["apart"]
    encoder = caches["entp"]
    cached = caches["decoder"].max() < EXACT and encoder[1] < EXACT and encoder[encoder.index > 1].min() > APART
    never = ("special_selected", "unselected_changed", "labels_not_the_original")
    masked = m["masking"]["largest_sigma"] < SIGMAS and not any(m["masking"][name] for name in never)
    # pairs of tokens of which one moves the other's state, in attention without a mask and causal
    full, causal = ((np.array(m["bugs"]["influence"][name]) > EXACT).sum() for name in ("corrected", "causal"))
    n = len(m["bugs"]["influence"]["causal"])
    one_pass, writing = m["costs"]["one_pass"], m["costs"]["slopes"]["decoder, cache"]["counted"]

    return [
        check("ED-all-tokens", "bugs", not some["B1"], every["B1"] and every["B3"], "with heads before tokens"),
        check("ED-past", "bugs", not some["B2"], every["B2"], "on scores between tokens"),
        check("ED-cache", "bugs", not some["B6"], every["B6"], CACHE),
        check("ED-layers", "parity", m["parity"]["largest_difference"] < PARITY),
        check("ED-mlm", "masking", masked, remark="special tokens are neither to be selected nor to be drawn"),
        check("ED-causal-loss", "losses", m["losses"]["largest"] < EXACT, remark="NaN where all labels are ignored"),
        check("ED-sampling", "sampling", frame(records, "sampling")["right"].all()),
        check("ED-cache-decoder", "caches", cached),
        check("ED-triangle", "bugs", full == n * n and causal == n * (n + 1) // 2, remark="N (N + 1) / 2"),
        check("ED-training-cost", "costs", 1.9 < one_pass <= 2, remark=LINEAR_MAPS),
        check("ED-encoder-time", "costs", one_pass < 0.1, one_pass > 1.9, ENCODER_TIME),
        check("ED-decoder-time", "costs", writing < 1.1, 1.9 < writing <= 2, DECODER_TIME),
    ]


TITLE = "Encoder and decoder: the primer's bugs, its parts rightly built, costs"
PLAN = plan_studies("encoder_decoder", STUDIES)
ENCODER_DECODER = Experiment("encoder_decoder", 1, TITLE, NOTEBOOK, PLAN, measure, jobs=1)  # CPU time is measured

# By arm: the objective, and how many positions of a window ENTP is scored at. The last is stored and not shown: its
# compute is half of the others'.
ARMS = {
    "masked": ("masked", "many"),
    "decoder": ("causal", "many"),
    "ENTP": ("entp", "many"),
    "ENTP, few positions": ("entp", "few"),
}
SHOWN = ("masked", "decoder", "ENTP")
EMBEDDED = dict(corpus="embedded", checksum="0cd7320f118b0da6")  # documentation of the versions in requirements.txt
TUNED = dict(labelled=1024, epochs=4, tested=512)
RATES = dict(max_lr=3e-3, min_lr=3e-4, warmup_steps=50, grad_clip=1.0)
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
        # with learned positions a masked model does not leave the unigram loss in these steps
        setting=dict(n_layers=2, n_heads=4, width=64, positions="rotary", **TUNED, curve_windows=128, candidates=32),
        train=dict(steps=500, batch_size=32, **RATES, eval_every=100),
        seeds=5,
    ),
}
NEAR_NATS, NEAR_SHARE = 0.1, 0.03  # closer than that to guessing counts as having learned nothing
# Claims, and the two arms and scores whose difference decides each.
COMPARED = (
    ("ED-next-token", ("masked", "next_token_loss"), ("decoder", "next_token_loss")),
    ("ED-both-sides", ("decoder", "middle_loss"), ("masked", "middle_loss")),
    ("ED-classification", ("masked", "accuracy"), ("decoder", "accuracy")),
    ("ED-entp-next", ("ENTP", "next_token_loss"), ("decoder", "next_token_loss")),
    ("ED-bayes", ("decoder", "candidate_loss"), ("masked", "middle_loss_few")),
)


def plan_objectives(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every arm at every seed, which share windows, initial weights and misprints."""
    t, runs = TIERS[tier], []
    for seed in range(seeds or t["seeds"]):
        for arm, (objective, scored) in ARMS.items():
            text = dict(t["text"], prefixes=t["prefixes"][scored])
            setting = dict(objective=objective, text=text, **t["setting"])
            params = dict(setting=setting, train_config=t["train"], model_seed=seed, data_seed=seed)
            labels = dict(arm=arm, objective=objective)
            runs.append(planned_study("objectives", tier, "encoder_decoder_objective", params, seed, **labels))
    return runs


def measure_objectives(records: Sequence[Record]) -> list[Measurement]:
    """Next token, a token in the middle and misprints, paired by seed."""
    rows, tier = table(records), records[0].config.tier
    length = records[0].config.params["setting"]["text"]["context"] + 1
    measured = []
    for claim, first, second in COMPARED:
        nats = first[1] != "accuracy"
        floor, ceiling, distance = (rows["unigram"].mean(), 0.0, NEAR_NATS) if nats else (1 / length, 1.0, NEAR_SHARE)
        sides = [rows[rows["arm"] == arm].set_index("seed")[metric].astype(float) for arm, metric in (first, second)]
        found = tuple(Level(float(side.mean()), floor, ceiling, distance) for side in sides)
        gaps, ids = (sides[0] - sides[1]).dropna().tolist(), names_of(records, arm=(first[0], second[0]))
        measured.append(Measurement(claim, gaps, tier, ids, levels=found))
    return measured


TITLE = "Masked, causal and ENTP's training of one backbone on one text"
OBJECTIVES = Experiment("objectives", 1, TITLE, NOTEBOOK, plan_objectives, measure_objectives, tiers=TIERS)

# --- Pictures of notebook 14, on axes that are given -----------------------------------------------------------------

TITLES = {"printed": "as printed", "corrected": "corrected", "causal": "corrected, causal"}


def looks() -> dict[str, Any]:
    """How every arm and way of writing is drawn; masked training in the colour that no architecture has."""
    from entp_lab.figures import PALETTE, Look

    decoder, entp = PALETTE["decoder"], PALETTE["entp"]
    rows = {
        "masked": ("#CC79A7", "-", "^"),
        "decoder": (decoder, "-", "o"),
        "decoder, cache": (decoder, "-", "s"),
        "decoder, no cache": (decoder, "--", "D", 3.0),  # counted like ENTP, whose line lies on it
        "ENTP": (entp, "-", "o"),
    }
    return {name: Look(colour, name, *how) for name, (colour, *how) in rows.items()}


def draw_influence(axes, influence: dict[str, Sequence[Sequence[float]]]) -> None:
    """Draw which token's change moves which output: a picture per attention, dark where it does."""
    from entp_lab.figures import heat

    for ax, (name, title) in zip(axes, TITLES.items(), strict=True):
        heat(ax, np.array(influence[name]) > 1e-6, cmap="Greys", vmax=1.4, linewidths=0.5)
        ax.set(title=title, xlabel="token changed")
    axes[0].set_ylabel("output")


def draw_objectives(axes, records: Sequence[Record]) -> None:
    """Loss of the next token while training and by prefix (left, middle): mean, and band over seeds, by arm.

    Right: the share of misprints found, a dot per seed and their mean, of every arm and of weights not trained before.
    """
    import seaborn as sns

    from entp_lab.figures import lines

    by_step, by_prefix = long(records, ["step", "next_token_loss"]), long(records, ["prefix", "loss_by_prefix"])
    label = dict(looks=looks(), ylabel="loss of the next token (nats)")
    lines(axes[0], by_step, "step", "next_token_loss", xlabel="step", title="while training", **label)
    words = dict(xlabel="length of the prefix", title="at the end")
    lines(axes[1], by_prefix, "prefix", "loss_by_prefix", **words, **label)
    rows = table(records)
    fresh = rows[rows["arm"].isin(("masked", "decoder"))].assign(accuracy=rows["fresh_accuracy"])
    found = pd.concat([rows, fresh.assign(arm=fresh["arm"] + ", fresh")])
    order = [*SHOWN, "masked, fresh", "decoder, fresh"]
    colours = {name: looks()[name.removesuffix(", fresh")].colour for name in order}
    named = dict(x="accuracy", y="arm", hue="arm", order=order, hue_order=order, palette=colours, legend=False)
    sns.stripplot(found, jitter=False, size=4, alpha=0.6, ax=axes[2], **named)
    sns.pointplot(found, errorbar=None, marker="|", markersize=12, linestyle="none", ax=axes[2], **named)
    chance = 1 / (records[0].config.params["setting"]["text"]["context"] + 1)
    axes[2].axvline(chance, color="grey", ls="--", lw=0.8, label="chance")
    axes[2].set_yticks(range(len(order)), order)
    axes[2].set(xlabel="share of misprints found", ylabel="", title="after fine-tuning")


def draw_costs(axes, records: Sequence[Record]) -> None:
    """Counted multiply-adds (left), and CPU seconds over those of a decoder with its cache (right)."""
    from entp_lab.figures import lines, plain_ticks

    found, shared = frame(records, "costs"), dict(by="way", looks=looks(), errorbar=None, xlabel="tokens written")
    lines(axes[0], found, "length", "counted", ylabel="multiply-adds, counted", xscale="log", yscale="log", **shared)
    label = "CPU time / decoder with cache"
    lines(axes[1], found, "length", "ratio_of_seconds", ylabel=label, xscale="log", **shared)
    for ax in axes:
        plain_ticks(ax.xaxis, found["length"])
