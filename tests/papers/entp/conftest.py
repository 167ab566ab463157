"""Records of runs that nobody made."""

import pytest

from entp_lib.experiments.experiment import Experiment
from entp_lib.records.store import Record

COUNTS = ("token_forwards", "steps", "train_seconds", "wall_seconds", "peak_memory_bytes")


@pytest.fixture
def ended():
    """Labelled records of an experiment's ``overnight`` runs with given final scores; nothing is trained."""

    def make(experiment: Experiment, ends: dict[str, float], mode: float) -> list[Record]:
        """``ends``: token accuracy of each arm, a thousandth more with every seed, no sequence being right; ``mode``:
        token accuracy of the baseline."""
        runs, records = experiment.plan("overnight", 0), []
        for run in runs:
            score = ends[run.labels["arm"]] + 0.001 * run.labels["seed"]
            scores = {"loss": 1.0, "token_accuracy": score, "sequence_accuracy": 0.0}
            metrics = {**scores, "baseline": {"token_accuracy": mode, "sequence_accuracy": 0.0}}
            where = {"device": "cpu", **dict.fromkeys(COUNTS, 1)}
            records.append(Record(run.config.experiment, 1, run.config, metrics, {}, where))
        return experiment.labelled(records, runs)

    return make
