"""The tables and frames that notebook 13 shows of its records."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from entp_lib.records.store import Record
from entp_lib.statistics import to_figures
from entp_lib.validation import from_dict
from entp_papers.scratchpad.experiment import frame, of_study
from entp_papers.scratchpad.training import Setting

MISSING = {"": "all", "groups": "group mask", "positions": "re-indexed positions", "targets": "masked targets"}
EVENTS = {"token": "a token is added", "state": "a state ends"}


def equivalence_table(records: Sequence[Record]) -> pd.DataFrame:
    """Differences of chunks and duplicated states by architecture and scheme: in the loss, in the worst gradient.

    Columns: what is left out of the duplicated states. The largest of all batches where nothing is, else the smallest.
    """
    table = frame(records, "equivalence")
    table["without"] = table["without"].map(MISSING)
    wide = table.pivot(index=["architecture", "scheme"], columns="without", values=["loss", "gradient"])
    order = [(value, name) for value in ("loss", "gradient") for name in MISSING.values()]
    return wide.reindex(columns=pd.MultiIndex.from_tuples(order, names=["difference of", "without"])).rename(
        columns={"all": "nothing"}
    )


def written_table(records: Sequence[Record]) -> pd.DataFrame:
    """Scratchpads of untrained models that differ from the definition, and the largest difference of logits, by way."""
    wide = frame(records, "writing").pivot(
        index="way", columns="scheme", values=["differing_texts", "largest_difference"]
    )
    return wide.loc[["masked", "recomputed", "doubled", "naive"]]


def reuse_table(records: Sequence[Record]) -> pd.DataFrame:
    """How many of the first layers keep their keys and values, of how many, by kind of model, event and part (X8).

    Empty where the model has let go of that part, or never had it.
    """
    study = of_study(records, "reuse")
    table = pd.DataFrame(study.curves)
    table["kept"] = [f"{kept} of {study.metrics['layers']}" for kept in table["layers_kept"]]
    table["event"] = table["event"].map(EVENTS)
    wide = table.pivot(index="kind", columns=["event", "part"], values="kept").fillna("")
    return wide.loc[list(dict.fromkeys(table["kind"]))]


def trained_ways(records: Sequence[Record]) -> pd.DataFrame:
    """What greedy writing with trained inductive decoders gives, by task: texts, how many differ between ways, logits.

    Beside them the tokens read in each way, on the questions of trained sizes that were compared.
    """
    rows = {}
    for r in records:
        if "ways" in r.metrics:
            rows.setdefault(r.labels["task"], []).append(r.metrics["ways"])
    found = {
        task: {
            "texts": sum(way["texts"] for way in ways),
            "differing_texts": sum(way["differing_texts"] for way in ways),
            "largest_difference": max(way["largest_difference"] for way in ways),
            **{name: sum(way["tokens_read"][name] for way in ways) for name in ways[0]["tokens_read"]},
        }
        for task, ways in rows.items()
    }
    return pd.DataFrame.from_dict(found, orient="index").map(to_figures)


def errors_by_state(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run and state of the longest questions: how often it is wrong when all states before it are right.

    ``beyond``: the state's number is one that no scratchpad in training had. Runs without a scratchpad are left out.
    """
    parts = []
    for r in records:
        setting, errors = from_dict(Setting, r.config.params["setting"]), r.curves["error_by_state"]
        if setting.scratchpad == "none":
            continue
        state = np.array(r.curves["state"])
        trained = len(errors) - (max(setting.test_sizes) - max(setting.train_sizes))
        parts.append(pd.DataFrame({**r.labels, "state": state, "error": errors, "beyond": state > trained}))
    return pd.concat(parts, ignore_index=True)
