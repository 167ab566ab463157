"""The laboratory: from configurations to records, data frames, figures, verdicts and notebooks.

    import entp_lab as lab

    runs = lab.compare(task, steps=1000, seeds=3)  # a task of one's own: decoder and ENTP, trained now
    runs = lab.run(lab.pairs(task, model, train, experiment="count3"))  # stored records, or trained now
    sns.lineplot(runs.curves(), x="multiply_adds", y="token_accuracy", hue="model")
    runs.paired("token_accuracy", "entp", "decoder")

Each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entp_lab.paired_runs import Runs, compare, pairs, run
    from entp_lab.theory import Outcome, claim, show_claim
    from entp_lab.weights import load_model

PLACES = {
    "Outcome": "theory",
    "Runs": "paired_runs",
    "claim": "theory",
    "compare": "paired_runs",
    "load_model": "weights",
    "pairs": "paired_runs",
    "run": "paired_runs",
    "show_claim": "theory",
}

__all__ = ["Outcome", "Runs", "claim", "compare", "load_model", "pairs", "run", "show_claim"]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"entp_lab.{PLACES[name]}"), name)
