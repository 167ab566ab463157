"""What notebook 05 accepts, and its experiments with another model in the place of a bundled one."""

from dataclasses import dataclass, replace

from entp_lib.experiments.experiment import Experiment, PlannedRun
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.validation import require
from entp_papers.entp.pretrained.weights import BUNDLED


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """``encoder`` and ``language_model``: a bundled name, a hub name or the path of a folder."""

    encoder: str = "minilm"
    language_model: str = "smollm2"

    def __post_init__(self):
        super().__post_init__()
        for name in ("encoder", "language_model"):
            require(
                bool(getattr(self, name).strip()), f"{name} = '': must name a model, such as {' or '.join(BUNDLED)}"
            )


def of_model(experiment: Experiment, model: str) -> Experiment:
    """The experiment with ``model`` wherever it plans a bundled one; itself where that is the model."""

    def swapped(run: PlannedRun) -> PlannedRun:
        params = run.config.params
        if params.get("model") not in BUNDLED or params["model"] == model:
            return run
        return replace(run, config=replace(run.config, params={**params, "model": model}))

    return replace(experiment, plan=lambda tier, seeds=0: [swapped(run) for run in experiment.plan(tier, seeds)])
