"""Pictures of notebooks 03 and 03b: comparisons over training, per compute and by prefix length; full layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from entp_lab import figures
from entp_lab.frames import ACCURACIES, curves, published, seconds_name, select, summary
from entp_lab.plans import TWINS
from entp_lab.store import Record
from entp_papers.entp.count3 import PAPER_TASK, positions
from entp_papers.entp.count3_steps import authors_log, step_ratios, way_of
from entp_papers.entp.full_layers import FULL_LAYERS, SAME_STEPS
from entp_papers.entp.logged import spent
from entp_papers.entp.pairless import lookup

ALT = "Token accuracy by steps and by compute, and ENTP less each decoder by steps and by prefix length."
MODE = dict(color=figures.PALETTE["baseline"], ls="--", lw=1.2, label="most frequent answer")
PAIRLESS = dict(color=figures.PALETTE["baseline"], ls="-.", lw=1.2, label="the shortcut")
LEAD = "difference\nin token accuracy"
GUESSES = {"mode": MODE, "pairless": PAIRLESS}


def guesses(
    ax, params: Mapping[str, Any], score: str = "token_accuracy", task: str = "counting", which: Sequence = (*GUESSES,)
) -> None:
    """Draw across ``ax`` what the commonest answer at each position scores, and what whoever looks at no pair does."""
    found = lookup(task, params)[0]
    for name in which:
        ax.axhline(found[name][score], **GUESSES[name])


def length_ticks(ax, by_n: pd.DataFrame) -> None:
    """Ticks at whole prefix lengths, about eight of them."""
    lengths = sorted(by_n["position"].unique())
    ax.set_xticks(lengths[:: 1 + len(lengths) // 8])


def figure_3(records: Sequence[Record]) -> Figure:
    """Loss, token and sequence accuracy over training: ours above, the authors' logs of Medium below."""
    theirs = published("entp", "count3_curves").query("size == 'medium'")
    theirs = theirs.assign(seed=0, thousands=theirs["step"] / 1000)
    course, params = curves(records), records[0].config.task_params
    fig, axes = figures.panels(3, 2, height=2.2)
    names = {"train_loss": "training loss (nats)"} | {name: name.replace("_", " ") for name in ACCURACIES}
    for (ax, other), (metric, label) in zip(axes.T, names.items(), strict=True):
        figures.lines(ax, course, "step", metric, ylabel=label, marks=4)
        figures.lines(other, theirs, "thousands", metric, xlabel="step (thousands)", ylabel=label, marks=4)
        if metric != "sequence_accuracy":  # of which a guess has next to none
            guesses(ax, params, metric.removeprefix("train_"))
            guesses(other, PAPER_TASK, metric.removeprefix("train_"))
    figures.legend(fig)
    axes[0, 0].set_title(f"ours, length {params['length']},\n{figures.tier_note(records)}")
    axes[1, 0].set_title("authors' logs, Medium, length 64")
    return fig


def by_compute(records: Sequence[Record]) -> Figure:
    """Token accuracy by compute and by seconds; of a prefix decoder not, whose curve is the decoder's."""
    course = curves(records).query("arm != 'prefix_decoder'")
    fig, axes = figures.panels(2, height=2.6, sharey=True)
    labels = figures.COMPUTE, seconds_name(records)
    for ax, x, label in zip(axes, ("multiply_adds", "seconds"), labels, strict=True):
        figures.lines(ax, course, x, "token_accuracy", xlabel=label, xscale="log")
        guesses(ax, records[0].config.task_params)
    figures.legend(fig)
    figures.title(fig, f"Count3 by what training has cost, {figures.tier_note(records)}")
    return fig


def by_length(records: Sequence[Record]) -> Figure:
    """Token accuracy with both guesses, ENTP less both decoders, and the mean logit margin, by prefix length."""
    table = positions(records)
    fig, axes = figures.panels(3, width=3.0, height=2.5)
    models = dict(x="position", xlabel="prefix length n")
    figures.lines(axes[0], table, y="token_accuracy", **models)
    figures.differences(axes[1], table, y="token_accuracy", **models)
    figures.lines(axes[2], table, y="margin", ylabel="mean logit margin (nats)", **models)
    means = table.groupby("position")[["baseline", "pairless"]].mean()
    for name, look in (("baseline", MODE), ("pairless", PAIRLESS)):
        axes[0].plot(means.index, means[name], **look)
    for ax in axes:
        length_ticks(ax, table)
    axes[1].set_ylabel("difference in token accuracy")
    figures.legend(fig)
    figures.title(fig, f"Count3 at the end by prefix length, {figures.tier_note(records)}")
    return fig


def by_full_layers(records: Sequence[Record]) -> Figure:
    """Token and sequence accuracy at the end by the number of full layers, at equal steps."""
    table = summary(select(records, budget=SAME_STEPS))
    looks = {SAME_STEPS: figures.Look("black", SAME_STEPS)}
    fig, axes = figures.panels(2, height=2.5)
    for ax, metric in zip(axes, ACCURACIES, strict=True):
        figures.lines(ax, table, "full", metric, by="budget", looks=looks, xlabel="full layers, of 4")
        ax.set_xticks(FULL_LAYERS)
    guesses(axes[0], records[0].config.task_params)
    figures.legend(fig)
    figures.title(fig, f"Count3 by how many layers see the whole prefix, {figures.tier_note(records)}")
    return fig


def courses(records: Sequence[Record], title: str, beyond: Sequence[str] = ()) -> Figure:
    """Token accuracy against steps and compute; ENTP less each decoder by steps, and at the end by length.

    ``beyond``: arms that the panels by step leave out, since their steps go far beyond the others'. A prefix decoder,
    whose curves are the decoder's, is not drawn.
    """
    course, by_n = (table[table["arm"] != "prefix_decoder"] for table in (curves(records), positions(records)))
    course["thousands"] = course["step"] / 1000
    near = course[~course["arm"].isin(beyond)]
    fig, ((by_step, by_cost), (gap, gap_by_n)) = figures.panels(2, 2, height=2.3)
    figures.lines(by_step, near, "thousands", "token_accuracy", xlabel="step (thousands)")
    figures.lines(by_cost, course, "multiply_adds", "token_accuracy", xscale="log")
    for ax in (by_step, by_cost):
        guesses(ax, records[0].config.task_params, which=("pairless",))
    figures.differences(gap, near, "thousands", "token_accuracy", xlabel="step (thousands)", ylabel=LEAD)
    figures.differences(gap_by_n, by_n, "position", "token_accuracy", xlabel="prefix length n", ylabel=LEAD)
    length_ticks(gap_by_n, by_n)
    figures.legend(fig)
    figures.title(fig, f"{title}, {figures.tier_note(records)}")
    return fig


def held_out_sets(sets: Mapping[str, tuple[Sequence[Record], float]]) -> Figure:
    """A row for each split by sets: token accuracy by steps, and at the end ENTP less each decoder by prefix length.

    ``sets``: by name the runs, and the token accuracy on sequences whose sets were trained on in other orders.
    """
    fig, axes = figures.panels(2, len(sets), height=2.3, squeeze=False)
    for (by_step, gap), (name, (records, known)) in zip(axes, sets.items(), strict=True):
        by_n = positions(records)
        figures.lines(by_step, curves(records), "step", "token_accuracy", xscale="log", ylim=(0, 1.02))
        guesses(by_step, records[0].config.task_params, which=("pairless",))
        by_step.axhline(known, color="grey", ls=":", label="trained sets,\nin other orders")
        figures.differences(gap, by_n, "position", "token_accuracy", xlabel="prefix length n", ylabel=LEAD)
        length_ticks(gap, by_n)
        by_step.set_title(f"{name},\n{figures.tier_note(records)}")
    figures.legend(fig)
    return fig


def steps_and_compute(record: Record) -> Figure:
    """Steps (left) and multiply-adds (right) to a share of the tokens, decoder and ENTP of a logged pair."""
    found = spent(record)
    fig, axes = figures.panels(2)
    kinds = (
        ("steps", 1e3, "steps to it (thousands)", "ENTP needs fewer steps,"),
        ("multiply-adds", 1e15, "multiply-adds to it (10¹⁵)", "not less compute"),
    )
    for ax, (kind, unit, label, title) in zip(axes, kinds, strict=True):
        table = (
            (found[kind] / unit)[list(TWINS)].melt(var_name="arm", value_name=kind, ignore_index=False).reset_index()
        )
        figures.lines(ax, table, "level", kind, errorbar=None, xlabel="token accuracy", ylabel=label, title=title)
        ax.set_ylim(0)
    axes[0].legend()
    return fig


SHARES = tuple(np.round(np.arange(0.3, 2.01, 0.05), 2).tolist())  # of the way from x_n alone to the pairless bound
LOG, OURS = "authors", "ours"


def ratios_by_share(settings: Mapping[str, Sequence[Record]]) -> pd.DataFrame:
    """Steps of a decoder over ENTP's to the same loss, long: columns setting, seed, share, ratio; the authors' first.

    ``share``: of the way from the loss of the best predictor that sees x_n alone to that of the best that looks at no
    pair, both of the setting's own task. ``settings``: by name records of "decoder" and "entp". A share that a run of
    any seed does not reach is left out. The authors' are of their logged training loss, Medium, one run each.
    """
    rows = []
    for name, runs in {LOG: authors_log(), **settings}.items():
        ends = way_of(runs[0].config.task_params if name != LOG else PAPER_TASK)
        seeds = dict.fromkeys(r.labels["seed"] for r in runs)
        smoothing = 1 if name == LOG else 3  # the log comes smoothed
        by_seed = {s: step_ratios(select(runs, seed=s, arm=TWINS), *ends, SHARES, smoothing) for s in seeds}
        whole = pd.DataFrame(by_seed).dropna().rename_axis("share").reset_index()
        rows.append(whole.melt("share", var_name="seed", value_name="ratio").assign(setting=name))
    return pd.concat(rows, ignore_index=True)


def step_ratio(pairs: Sequence[Record]) -> Figure:
    """A decoder's steps over ENTP's to the same loss, against how much is learned: the authors' log and our pairs.

    ``pairs``: records of "decoder" and "entp" of one setting; drawn are the mean over random seeds and, as a band, all
    of them.
    """
    table = ratios_by_share({OURS: pairs} if pairs else {})
    looks = {
        LOG: figures.Look(figures.OTHERS[0], "authors, one run, length 64"),
        OURS: figures.Look(figures.PALETTE["entp"], "ours, five pairs, length 16"),
    }
    fig, ax = figures.panels(1, width=5.6, height=2.9)
    figures.lines(ax, table, "share", "ratio", by="setting", looks=looks, marks=0)
    ax.axhline(1, color="grey", lw=0.8)
    for name, part in table.groupby("setting", sort=False):
        last = part.loc[part["share"] == part["share"].max()]
        place = (last["share"].iloc[0], last["ratio"].mean() + 0.09)
        ax.annotate(looks[name].label, place, ha="right", fontsize=9, color=looks[name].colour)
    ax.set_xticks([0.5, 1.0, 2.0], ["half of the way", "as good as\nthe shortcut", "twice as far"])
    ax.set(xlabel="how much is learned", ylabel="decoder's steps for one of ENTP's", ylim=0)
    figures.title(fig, "In our runs ENTP needs as many steps as the decoder")
    return fig
