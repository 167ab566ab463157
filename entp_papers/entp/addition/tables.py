"""Frames of the addition experiments: means, paired tests, cells, curves, costs, and the authors'
logs.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lab.frames import curves, published, select
from entp_lab.plans import TWINS
from entp_lab.statistics import mean_interval, to_figures, welch_interval
from entp_lab.store import Record
from entp_papers.entp.addition.experiment import ARMS, chosen, gaps, scores, to_999

ENDS = ("", ", low", ", high")


def authors_seen_runs(model: str = "small") -> pd.DataFrame:
    """Read the authors' runs of a model whose error on their training examples was logged, up to
    5,000 of them, a row each.

    Columns: format, n_train, seed, arm, ``seen_error`` and ``test_error``, both of the weights of
    lowest text loss.
    """
    return (
        published("entp", "addition_seen")
        .query("model == @model")
        .rename(columns={"architecture": "arm"})
    )


def authors_seen(model: str = "small") -> pd.DataFrame:
    """Errors of ``authors_seen_runs`` by format and size, and decoder − ENTP on the examples seen
    and on the test.

    ``left`` is the part of the test difference that is none on the examples seen, paired by seed,
    with its 95 % t interval; ``above zero`` counts the seeds in which it is ENTP's.
    """
    rows = {}
    for key, part in authors_seen_runs(model).groupby(["format", "n_train"]):
        wide = part.pivot(index="seed", columns="arm", values=["seen_error", "test_error"])
        kinds = {"seen": wide["seen_error"], "test": wide["test_error"]}
        row = {
            f"{kind}, {ARMS[arm]}": errors[arm].mean()
            for kind, errors in kinds.items()
            for arm in TWINS
        }
        apart = {kind: errors["decoder"] - errors["entp"] for kind, errors in kinds.items()}
        row |= {f"{kind}, difference": differences.mean() for kind, differences in apart.items()}
        left = apart["test"] - apart["seen"]
        row |= dict(zip(("left", "low", "high"), mean_interval(left), strict=True))
        rows[key] = row | {"above zero": f"{int((left > 0).sum())} of {len(left)}"}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["format", "n_train"]).round(3)


def beside_authors(records: Sequence[Record], rule: str) -> pd.DataFrame:
    """Our mean error beside the authors', and the difference in standard errors, theirs and ours
    together.

    Only sums up to 999, as theirs. Rows of our models by that name, of any other beside the
    authors' Small. ``on seen``: our mean error on the training examples, by the last weights.
    """
    same = to_999(records)
    if not same:
        return pd.DataFrame()
    table, by, theirs = (
        chosen(scores(same), rule),
        ["model", "format", "arm", "n_train"],
        published("entp", "addition"),
    )
    groups = table.groupby(by, sort=False)
    ours = (
        groups["error"]
        .agg(["mean", "std", "size"])
        .assign(**{"on seen": groups["seen_error"].mean()})
        .reset_index()
    )
    ours["logged"] = ours["model"].where(ours["model"].isin(theirs["model"]), "small")
    theirs = theirs.rename(
        columns={"model": "logged", "architecture": "arm", "seeds": "their seeds"}
    )
    both = ours.merge(theirs, on=["logged", "format", "arm", "n_train"])
    errors = both["std"] ** 2 / both["size"] + both["error_sd"] ** 2 / (
        both["their seeds"] - 1
    )  # population SD
    both["in standard errors"] = (both["mean"] - both["error"]) / errors**0.5
    names = {
        "mean": "ours",
        "std": "our SD",
        "size": "seeds",
        "error": "authors",
        "error_sd": "their SD",
    }
    columns = ["model", "logged", "format", "n_train", "arm", "ours", "our SD", "seeds", "on seen"]
    columns += ["authors", "their SD", "their seeds", "in standard errors"]
    return both.rename(columns=names)[columns].map(to_figures, decimals=4)


def gaps_beside_authors(records: Sequence[Record], rule: str) -> pd.DataFrame:
    """Return decoder − ENTP in test error by format and size: ours, paired by seed, and that of the
    authors' Small.

    Only runs of their task and model. Ours has the paired t interval, theirs Welch's, from means
    and deviations.
    """
    same = select(to_999(records), model="small")
    if not same:
        return pd.DataFrame()
    rows, logged = {}, published("entp", "addition").query("model == 'small'")
    logged["error_sd"] *= (
        logged["seeds"] / (logged["seeds"] - 1)
    ) ** 0.5  # theirs is a population SD
    logged = logged.set_index(["format", "n_train", "architecture"])[["error", "error_sd", "seeds"]]
    for form, part in chosen(scores(same), rule).groupby("format", sort=False):
        for size, values in gaps(part).items():
            if (form, size, "entp") in logged.index:
                theirs = (tuple(logged.loc[(form, size, arm)]) for arm in TWINS)
                found = {"ours": mean_interval(values.dropna()), "authors": welch_interval(*theirs)}
                rows[form, size] = {
                    who + end: x for who, t in found.items() for end, x in zip(ENDS, t, strict=True)
                }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["format", "n_train"]).round(3)


def by_group(records: Sequence[Record], rule: str) -> pd.DataFrame:
    """``scores`` by one rule, an error for each of the task's groups. ConfigError for a rule that
    the records lack.
    """
    rows = []
    for r, row in zip(records, chosen(scores(records), rule).to_dict("records"), strict=True):
        for name, found in r.metrics["test"][rule]["groups"].items():
            rows.append({**row, "group": name, "error": 1 - found["right"] / found["sequences"]})
    return pd.DataFrame(rows)


def curves_of(records: Sequence[Record]) -> pd.DataFrame:
    """``curves`` with the validation error of whole answers."""
    course = curves(records)
    return course.assign(error=1 - course["sequence_accuracy"])
