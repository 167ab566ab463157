"""Addition: the arms spend what they say, frames pair what belongs together, the published table is the authors'."""

import dataclasses
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from entp_lib import paths
from entp_lib.config import SIZES
from entp_lib.experiments import claims, figures
from entp_lib.experiments.frames import interval_table
from entp_lib.experiments.measurements import name_of
from entp_lib.models.entp import token_forwards
from entp_lib.records.store import Record
from entp_lib.statistics import mean_interval
from entp_lib.tasks import Addition, LongAddition, build_task, generator_for
from entp_lib.validation import ConfigError
from entp_papers.entp.addition import experiment as module
from entp_papers.entp.addition import lengths, pictures, tables, tiers
from entp_papers.entp.addition.experiment import ADDITION
from entp_papers.entp.addition.lengths import LENGTHS

RULES = ("last", "lowest_loss", "highest_accuracy")


@pytest.fixture(scope="module")
def made_up():
    """A function that makes the records of a tier with given test errors; nothing is trained."""

    def make(experiment, tier, error, seeds=5, groups=("2 digits, 0 carries", "2 digits, 1 carries"), known=0.9):
        found, known = [], {"sequence_accuracy": known}
        for run in experiment.plan(tier, seeds):
            config, arm = run.config, run.labels["arm"]
            test = {}
            for rule in RULES:
                wrong = error(arm, rule, config.model_seed, config.task_params)
                split = {g: {"sequences": 1000, "right": round(1000 * (1 - wrong))} for g in groups}
                test[rule] = {"step": 10, "sequence_accuracy": 1 - wrong, "token_accuracy": 1 - wrong / 2}
                test[rule] |= {"loss": 1.0, "groups": split}
            curves = {"step": [5, 10], "token_forwards": [50, 100], "seconds": [1.0, 2.0]}
            curves["sequence_accuracy"] = [0.1, 0.2]
            cost = {"token_forwards": 100, "train_seconds": 2.0 if arm == "decoder" else 6.0}
            found.append(
                Record(
                    experiment.name,
                    experiment.version,
                    config,
                    {"test": test, "seen": {"sequence_accuracy": 0.75 if arm == "entp" else 1.0}, **known},
                    curves,
                    cost,
                    labels=run.labels,
                )
            )
        return found

    return make


def spread(arm, rule, seed, params):
    """The decoder is 0.1 + 0.01 times the seed behind ENTP, the longer one 0.05 ahead; other rules half of that."""
    gap = {"decoder": 0.1 + 0.01 * seed, "entp": 0.0, "longer": -0.05}[arm]
    return 0.3 + gap * (0.5 if rule == "highest_accuracy" else 1.0)


@pytest.mark.parametrize("largest", [99, 999])
def test_the_ratio_of_answers_is_that_of_the_rows(largest):
    for n_train in (500, 1000, 2000) if largest == 99 else (2500, 20_000):
        task = Addition(n_train=n_train, largest=largest)
        wanted = task.batch(generator_for("cpu", 0), 4000).wanted_BT
        ratio = token_forwards("entp", wanted) / token_forwards("decoder", wanted)
        assert tiers.ratio_of(task) == pytest.approx(ratio, rel=0.06)


@pytest.mark.parametrize("task", [Addition(view="windows"), LongAddition(view="windows", window=50)])
def test_the_ratio_of_windows_is_exact(task):
    wanted = dataclasses.replace(task, part="text").batch(generator_for("cpu", 0), 2).wanted_BT
    assert tiers.ratio_of(task) == token_forwards("entp", wanted) / token_forwards("decoder", wanted)


def test_the_papers_settings_are_the_papers():
    configs = ADDITION.configs("paper")
    small = [run.config for run in ADDITION.plan("paper") if run.labels["model"] == "small"]
    assert {c.task_params["n_train"] for c in small} == {1250, 2500, 3750, 5000, 10_000, 15_000, 20_000}
    assert {build_task(c.task, c.task_params).view for c in configs} == {"windows"}
    train = next(c for c in small if c.model.architecture == "entp").train
    assert (train.steps, train.decay_steps, train.warmup_steps, train.batch_size) == (8000, 5000, 100, 64)
    assert (train.max_lr, train.min_lr, train.patience, train.eval_every) == (5e-4, 5e-5, 0, 100)
    config = LENGTHS.configs("paper")[0]
    train = config.train
    assert build_task(config.task, config.task_params) == LongAddition(view="windows")
    assert (train.steps, train.decay_steps, train.warmup_steps, train.batch_size) == (50_000, 50_000, 500, 64)
    assert (config.model.n_layers, config.model.n_heads, config.model.width) == tuple(SIZES["small_deep"].values())


def test_gaps_are_paired_by_seed_and_pooled_over_sizes(made_up):
    def error(arm, rule, seed, params):
        return spread(arm, rule, seed, params) + (0.2 if arm == "decoder" and params["n_train"] == 300 else 0.0)

    table = module.scores(made_up(ADDITION, "quick", error))
    found = module.gaps(module.chosen(table, "last", format="reversed"))
    sizes = len(found.columns)
    assert found.loc[3, 900] == pytest.approx(0.13) and found.loc[3, 300] == pytest.approx(0.33)
    assert module.pooled(found).to_numpy() == pytest.approx([0.1 + 0.01 * s + 0.2 / sizes for s in range(5)])
    tests = tables.paired_tests(module.chosen(table, "last", format="reversed"))
    assert tests.loc["all sizes", "mean"] == pytest.approx(0.12 + 0.2 / sizes, abs=1e-4)
    assert (tests["low"] < tests["mean"]).all() and (tests["above zero"] == "5 of 5").all()
    reverse = tables.paired_tests(module.chosen(table, "last", format="reversed"), "longer")
    assert (reverse["above zero"] == "0 of 5").all() and (reverse["mean"] < 0).all()
    assert module.gaps(module.chosen(table, "last", format="plain"), "longer").empty
    assert module.pooled(pd.DataFrame()).empty


def test_claims_are_measured_by_their_rule_and_arm(made_up):
    found = {m.claim: m for m in module.measure(made_up(ADDITION, "quick", spread))}
    assert set(found) == {"F5-addition", "F5-best", "F5-fair", "F11-addition"}
    assert found["F5-best"].values == pytest.approx([0.05 + 0.005 * s for s in range(5)])
    assert found["F5-addition"].values == pytest.approx([0.1 + 0.01 * s for s in range(5)])
    assert found["F5-fair"].values == pytest.approx([-0.025] * 5)
    assert not any(m.paper_settings for m in found.values())
    assert not set(found["F5-addition"].records) & set(found["F11-addition"].records)
    judged = claims.judge(list(found.values()), only_measured=True).set_index("id")["verdict"]
    assert judged["F5-addition"] == "same direction" and judged["F5-fair"] == "decoder ahead"


def test_figures_5_and_11_rest_on_small_alone(made_up):
    """The gpu tier has Medium too, whose errors are not mixed with Small's."""

    def error(arm, rule, seed, params):
        return 0.5 if arm == "decoder" else 0.4

    records = made_up(ADDITION, "gpu", error)
    medium = {r.id for r in records if r.labels["model"] == "medium"}
    for r in records:
        if r.id in medium:
            r.metrics["test"] = {rule: t | {"sequence_accuracy": 0.0} for rule, t in r.metrics["test"].items()}
    found = {m.claim: m.values for m in module.measure(records)}
    behind, level = pytest.approx([0.1] * 5), pytest.approx([0.0] * 5)
    at_equal_steps = dict.fromkeys(("F5-addition", "F5-best", "F11-addition"), behind)
    assert found == {**at_equal_steps, "F5-fair": level}


@pytest.mark.parametrize(
    ("errors", "expected", "barred"),
    [
        ({1250: (0.5, 0.4), 2500: (0.3, 0.1), 5000: (0.2, 0.1)}, (0.1 + 0.2 + 0.1) / 3, ""),
        ({1250: (0.95, 0.93), 2500: (0.3, 0.1), 5000: (0.009, 0.001)}, 0.2, ""),
        ({1250: (0.95, 0.89), 2500: (0.3, 0.1), 5000: (0.011, 0.001)}, (0.06 + 0.2 + 0.01) / 3, ""),
        (
            {1250: (0.95, 0.93), 2500: (0.93, 0.92), 5000: (0.009, 0.001)},
            (0.02 + 0.01 + 0.008) / 3,
            "errors of both above 0.9 or below 0.01 at every size",
        ),
    ],
)
def test_overnight_drops_sizes_at_which_both_are_at_an_end(made_up, errors, expected, barred):
    def error(arm, rule, seed, params):
        return errors[params["n_train"]][1 if arm == "entp" else 0]

    records = made_up(ADDITION, "overnight", error)
    found = {m.claim: m for m in module.measure(records)}
    assert found["F5-best"].values == pytest.approx([expected] * 5) and found["F5-best"].excluded_because == barred
    table = module.chosen(module.scores(records), module.BEST_ANSWERS, format="reversed")
    assert tables.paired_tests(table)["mean"].iloc[-1] == pytest.approx(expected, abs=1e-4)
    paper = module.scores(made_up(ADDITION, "paper", lambda *_: 0.95))
    assert len(module.comparable(paper)) == len(paper)


def test_the_fair_comparison_is_of_sizes_at_which_both_arms_ran(made_up):
    """The longer decoder has not every size: others neither keep the row open nor stand among its records."""

    def error(arm, rule, seed, params):
        return 0.95 if params["n_train"] < 5000 else 0.5

    records = made_up(ADDITION, "overnight", error)
    found = {m.claim: m for m in module.measure(records)}
    assert found["F5-fair"].excluded_because and len(found["F5-fair"].values) == 5
    assert not found["F5-best"].excluded_because
    sizes = {name_of(r): (r.labels["arm"], r.labels["n_train"]) for r in records}
    assert {sizes[n] for n in found["F5-fair"].records} == {(a, n) for a in ("longer", "entp") for n in (1250, 2500)}
    assert {sizes[n][0] for n in found["F5-best"].records} == {"decoder", "entp"}


@pytest.mark.parametrize("tier", ["smoke", "quick", "gpu", "paper"])
def test_every_tier_can_be_read(made_up, tier):
    """Frames and measurements take what each tier has, and say nothing of what it lacks."""
    records = made_up(ADDITION, tier, spread, seeds=2)
    assert {m.claim for m in module.measure(records)} >= {"F5-addition", "F5-fair", "F11-addition"}
    longer = made_up(LENGTHS, tier, spread, seeds=2, groups=tuple(f"{n} digits" for n in range(1, 12)))
    of_windows = {"F6-characters"} if tier != "quick" else set()  # answers alone leave later positions as they began
    assert {m.claim for m in lengths.measure(longer)} == {"F6-length", *of_windows}
    assert not any(m.paper_settings for m in lengths.measure(longer))
    nothing = interval_table(module.scores(records).iloc[:0], "error", ("arm", "n_train"))
    assert nothing.empty and "mean" in nothing


def test_a_rule_that_a_tier_will_not_have_is_refused_before_it_runs():
    with pytest.raises(ConfigError, match="'lowest_text_loss': the runs of tier quick train on answers alone"):
        module.Parameters(tier="quick", rule="lowest_text_loss")
    with pytest.raises(ConfigError, match="watch no loss of whole texts"):
        module.Parameters(rule="lowest_text_loss", fresh=True)
    module.Parameters(rule="lowest_text_loss")  # whatever the stored runs have
    module.Parameters(tier="quick", rule="lowest_text_loss", changes={"task.view": "windows"})
    module.Parameters(tier="paper", rule="lowest_text_loss")
    module.Parameters(tier="quick", rule="highest_accuracy")


def test_errors_by_group_and_by_digits(made_up):
    records = made_up(ADDITION, "smoke", lambda *_: 0.25, seeds=1)
    cells = tables.by_group(records, "last")
    assert len(cells) == 2 * len(records) and cells["error"].to_numpy() == pytest.approx(0.25)
    longer = made_up(LENGTHS, "gpu", spread, groups=("7 digits", "8 digits"))
    found = lengths.by_digits(longer, "last")
    assert sorted(found["digits"].unique()) == [7, 8]
    measured = {m.claim: m.values for m in lengths.measure(longer)}
    assert measured["F6-length"] == pytest.approx([0.1 + 0.01 * s for s in range(5)])


@pytest.mark.parametrize(
    ("wrong", "known", "why"),
    [
        ({"decoder": 0.9, "entp": 0.8, "longer": 0.9}, 0.9, ""),
        ({"decoder": 0.96, "entp": 0.97, "longer": 0.96}, 0.9, "both err on more than 95% one digit on"),
        ({"decoder": 0.96, "entp": 0.94, "longer": 0.96}, 0.9, ""),
        ({"decoder": 0.9, "entp": 0.8, "longer": 0.9}, 0.79, "the decoder errs on 20% of the trained lengths or more"),
    ],
)
def test_overnight_compares_longer_sums_by_the_gates_of_its_design(made_up, wrong, known, why):
    records = made_up(LENGTHS, "overnight", lambda arm, *_: wrong[arm], groups=("3 digits", "4 digits"), known=known)
    found = {m.claim: m for m in lengths.measure(records)}
    assert found["F6-length"].excluded_because == why
    assert found["F6-length"].values == pytest.approx([wrong["decoder"] - wrong["entp"]] * 5)
    assert found["F6-characters"].values == pytest.approx([(wrong["decoder"] - wrong["entp"]) / 2] * 5)
    assert bool(found["F6-characters"].excluded_because) == (known < 0.85)


def test_costs_are_compared_on_the_same_sums():
    """The longer decoder has one size of three: it is held against the decoder there, not against its mean."""
    rows = [
        ("decoder", 300, 1.0),
        ("decoder", 900, 4.0),
        ("longer", 900, 10.0),
        ("entp", 300, 2.0),
        ("entp", 900, 12.0),
    ]
    common = {"model": "m", "format": "reversed", "rule": "last"}
    table = pd.DataFrame(
        {**common, "arm": arm, "n_train": n, "token_forwards": cost, "train_seconds": 2 * cost} for arm, n, cost in rows
    )
    found = tables.costs(table).loc["m", "token_forwards, times the decoder's"]
    assert found.to_dict() == {"decoder": 1.0, "longer": 2.5, "entp": 2.5}


def test_the_difference_from_the_authors_is_in_standard_errors(made_up):
    records = [r for r in made_up(ADDITION, "gpu", spread) if r.labels["model"] == "small"]
    table = tables.beside_authors(records, "last").set_index(["format", "n_train", "arm"])
    row = table.loc[("reversed", 2500, "decoder")]
    theirs = tables.authors().set_index(["model", "format", "n_train", "architecture"])
    theirs = theirs.loc[("small", "reversed", 2500, "decoder")]
    error = math.sqrt(np.var([0, 0.01, 0.02, 0.03, 0.04], ddof=1) / 5 + theirs["error_sd"] ** 2 / (theirs["seeds"] - 1))
    assert row["in standard errors"] == pytest.approx((0.42 - theirs["error"]) / error, rel=1e-3)
    assert row["on seen"] == 0 and table.loc[("reversed", 2500, "entp"), "on seen"] == 0.25
    assert tables.beside_authors(made_up(ADDITION, "quick", spread), "last").empty  # sums up to 99


def test_what_is_left_of_a_gap_is_paired_by_seed():
    found = tables.authors_seen()
    assert list(found.index) == [(form, n) for form in ("plain", "reversed") for n in (1250, 2500, 3750, 5000)]
    row, errors = found.loc[("reversed", 2500)], {}
    for name in ("seen", "test"):
        assert row[f"{name}, difference"] == pytest.approx(row[f"{name}, decoder"] - row[f"{name}, ENTP"], abs=2e-3)
        for arm in ("decoder", "entp"):
            runs = tables.authors_seen_runs().query("format == 'reversed' and n_train == 2500 and arm == @arm")
            errors[name, arm] = runs.set_index("seed")[f"{name}_error"]
    left = (errors["test", "decoder"] - errors["test", "entp"]) - (errors["seen", "decoder"] - errors["seen", "entp"])
    mean, low, high = mean_interval(left)
    assert list(row[["left", "low", "high"]]) == pytest.approx([mean, low, high], abs=1e-3)
    assert row["above zero"] == "5 of 5" and (left > 0).all() and low > 0
    assert not (tables.authors_seen("medium").loc["reversed"] == found.loc["reversed"]).all().all()


def test_the_published_means_are_those_of_the_logs():
    """The table against the runs it was made from, and the claims' values against the table."""
    logs = paths.root().parent / "shared" / "data" / "entp_authors_addition_runs.csv"
    if not logs.exists():
        pytest.skip("the authors' runs are not here")
    runs = pd.read_csv(logs).query("batch_size == 64")
    found = tables.authors().set_index(["model", "format", "architecture", "n_train"])
    assert len(found) == 56 and found["seeds"].sum() == len(runs)
    names = {"task": {"plain_addition": "plain", "reversed_addition": "reversed"}, "n_layer": {3: "small", 6: "medium"}}
    for (task, layers, decoder, n), part in runs.groupby(["task", "n_layer", "decoder", "n_train"]):
        row = found.loc[(names["n_layer"][layers], names["task"][task], "decoder" if decoder else "entp", n)]
        assert row["error"] == pytest.approx(1 - part["accuracy_test"].mean(), abs=1e-6)
        assert row["error_sd"] == pytest.approx(part["accuracy_test"].std(ddof=0), abs=1e-6)
        assert row["error_3d_1c"] == pytest.approx(1 - part["accuracy_3d_1c"].mean(), abs=1e-6)
    kept = pd.concat([tables.authors_seen_runs("small"), tables.authors_seen_runs("medium")])
    assert len(kept) == runs["accuracy_train"].notna().sum() == 200
    for row in kept.itertuples():
        layers, task = {"small": 3, "medium": 6}[row.model], f"{row.format}_addition"
        part = runs[(runs["task"] == task) & (runs["n_layer"] == layers) & (runs["seed"] == row.seed)]
        part = part[(part["n_train"] == row.n_train) & (part["decoder"] == (row.arm == "decoder"))]
        assert len(part) == 1 and row.seen_error == pytest.approx(1 - part["accuracy_train"].item(), abs=1e-6)
        assert row.test_error == pytest.approx(1 - part["accuracy_test"].item(), abs=1e-6)


def test_the_claimed_values_are_those_of_the_tables():
    stated = claims.reference_claims().set_index("id")["paper_value"]
    small = tables.authors().query("model == 'small'").rename(columns={"architecture": "arm"}).assign(seed=0)
    for claim, form in (("F5-addition", "reversed"), ("F11-addition", "plain")):
        gap = module.pooled(module.gaps(small[small["format"] == form]))
        assert gap.to_numpy() == pytest.approx([stated[claim]], abs=1e-4)
    last = lengths.authors().query("checkpoint.str.startswith('last')").groupby("architecture")["error"].mean()
    assert last["decoder"] - last["entp"] == pytest.approx(stated["F6-length"], abs=1e-4)


@pytest.mark.parametrize("tier", ["smoke", "quick", "overnight", "gpu", "paper"])
def test_the_papers_value_is_over_the_sizes_that_were_measured(made_up, tier):
    """Where some of the authors' sizes were run, both are of these; else the claim's own value stands."""
    small = (
        tables.authors()
        .query("model == 'small'")
        .pivot_table(index=["format", "n_train"], columns="architecture", values="error")
    )
    theirs = small["decoder"] - small["entp"]
    stated = claims.reference_claims().set_index("id")["paper_value"]
    records = made_up(ADDITION, tier, spread)
    rows = claims.judge(ADDITION.measure(records), only_measured=True).set_index("id")
    for claim, form in (("F5-addition", "reversed"), ("F11-addition", "plain")):
        have = {r.labels["n_train"] for r in records if r.labels["format"] == form and r.labels["model"] == "small"}
        shared = [n for n in theirs[form].index if n in have]
        whole = tier in ("smoke", "quick", "paper") or len(shared) == len(theirs[form])
        assert whole or 0 < len(shared) < len(theirs[form])
        wanted = stated[claim] if whole else theirs[form][shared].mean()
        assert rows.loc[claim, "paper_value"] == pytest.approx(wanted, abs=1e-4)
        assert rows.loc[claim, "statement"].endswith("examples]") == (not whole)
    assert rows.loc["F5-best", "paper_value"] is None or math.isnan(rows.loc["F5-best", "paper_value"])


def drawn_lines(fig):
    """(panel, label) of every labelled line, bars of an interval left out."""
    lines = ((i, line) for i, ax in enumerate(fig.axes) for line in ax.get_lines())
    found = {(i, line.get_label()) for i, line in lines if not line.get_label().startswith("_")}
    bars = {(i, c.get_label()) for i, ax in enumerate(fig.axes) for c in ax.containers}
    return found | bars


@pytest.mark.parametrize("tier", ["quick", "overnight", "gpu"])
def test_the_authors_share_our_axes_only_where_task_and_model_are_theirs(made_up, tier):
    records = made_up(ADDITION, tier, lambda arm, rule, seed, params: 0.5 if arm == "decoder" else 0.4)
    table = module.paper_model(module.scores(records))
    table = module.chosen(table, "last", format="reversed").query("arm != 'longer'")
    fig = pictures.beside_authors(table, "reversed", records)
    models = [figures.NAMES["decoder"], figures.NAMES["entp"]]
    if tier == "quick":
        assert drawn_lines(fig) == {
            (at, f"{whose}, {m}") for at, whose in enumerate(("ours", "authors")) for m in models
        }
    else:
        assert drawn_lines(fig) == {(0, f"{whose}, {model}") for whose in ("ours", "authors") for model in models}
        theirs = tables.authors_means("small", "reversed").query("arm == 'entp'").sort_values("n_train")
        (bar,) = [c for c in fig.axes[0].containers if c.get_label() == f"authors, {models[1]}"]
        assert list(bar.lines[0].get_ydata()) == list(theirs["mean"])
    plt.close(fig)


def test_errors_seen_and_unseen_are_drawn_for_both(made_up):
    records = made_up(ADDITION, "overnight", lambda arm, rule, seed, params: 0.3 if arm == "decoder" else 0.4)
    table = module.chosen(module.scores(records), "last", format="reversed").query("arm != 'longer'")
    fig = pictures.seen_and_unseen(table, "reversed", records)
    theirs, ours = ({line.get_label(): line for line in ax.get_lines()} for ax in fig.axes)
    assert set(theirs) == set(ours) and len(ours) == 4
    assert list(ours["ENTP, new sums"].get_ydata()) == pytest.approx([0.4] * 3)
    assert list(ours["ENTP, trained sums"].get_ydata()) == pytest.approx([0.25] * 3)  # as made up above
    assert list(theirs["decoder, new sums"].get_xdata()) == [1250, 2500, 3750, 5000]
    assert theirs["decoder, trained sums"].get_ydata()[0] == pytest.approx(0.77472)
    plt.close(fig)


def test_cells_show_the_means_of_the_smallest_and_largest_training_sets(made_up):
    def error(arm, rule, seed, params):
        return {300: 0.9, 900: 0.5, 2700: 0.1}[params["n_train"]] + 0.05 * (arm == "decoder")

    records = made_up(ADDITION, "quick", error)
    cells = tables.by_group(records, "last").query("format == 'reversed'")
    fig = pictures.by_cells(cells)
    assert [ax.get_title("left") for ax in fig.axes] == ["300 training examples", "2,700 training examples"]
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["2 digits, 0 carries", "2 digits, 1 carries"]
    for ax, mean in zip(fig.axes, (0.9, 0.1), strict=True):
        means = {line.get_color(): list(line.get_xdata()) for line in ax.get_lines() if len(line.get_xdata()) == 2}
        assert means[figures.PALETTE["decoder"]] == pytest.approx([mean + 0.05] * 2)
        assert means[figures.PALETTE["entp"]] == pytest.approx([mean] * 2)
    plt.close(fig)
