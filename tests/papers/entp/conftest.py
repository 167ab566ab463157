"""Records of runs that nobody made."""

import pytest
from made_up import record_of

from entp_lib.experiments.experiment import Experiment
from entp_lib.records.store import Record


@pytest.fixture
def ended():
    """Labelled records of an experiment's ``overnight`` runs with given final scores; nothing is trained."""

    def make(experiment: Experiment, ends: dict[str, float], mode: float) -> list[Record]:
        """``ends``: token accuracy of each arm, a thousandth more with every seed, no sequence being right; ``mode``:
        token accuracy of the baseline."""
        baseline, found = {"token_accuracy": mode, "sequence_accuracy": 0.0}, []
        for run in experiment.plan("overnight", 0):
            score = ends[run.labels["arm"]] + 0.001 * run.labels["seed"]
            found.append(record_of(run, token_accuracy=score, sequence_accuracy=0.0, baseline=baseline))
        return found

    return make
