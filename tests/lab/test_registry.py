"""Names of experiments and studies: an unknown one is a short line, and a missing paper takes no
other along.
"""

import pkgutil

import pytest
from mistakes import refused

from entp_lab import registry
from entp_lab.registry import EXPERIMENTS, Registry, papers


@pytest.mark.parametrize(
    ("name", "near"), [("cout3", "count3"), ("nope", "entp list names them all")]
)
def test_an_unknown_experiment_is_answered_with_five_near_names_at_most(name, near):
    with refused(near) as error:
        EXPERIMENTS.named(name)
    assert 0 <= sum(other in str(error.value).split() for other in EXPERIMENTS) <= 5


def test_without_one_papers_folder_the_others_work(monkeypatch):
    def others(path, real=pkgutil.iter_modules):
        return [found for found in real(path) if found.name != "scratchpad"]

    whole = set(EXPERIMENTS)
    monkeypatch.setattr(pkgutil, "iter_modules", others)
    monkeypatch.setattr(registry, "papers", papers.__wrapped__)
    left = Registry("experiment", "EXPERIMENTS")
    assert "scratchpad" not in registry.papers()
    assert set(left) == {
        name for name in whole if not EXPERIMENTS.places[name].startswith("entp_papers.scratchpad")
    }
