"""The study of length: deterministic, fair between architectures, and refusing what cannot be."""

import json

import numpy as np
import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import length_studies, lengths
from entp_papers.compact.formats import FORMATS
from entp_papers.compact.positions import SCHEMES

TINY = dict(trained_digits=2, tested_digits=[2, 3], n_layers=1, n_heads=2, width=16, steps=4, batch_size=8, tested=10)


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_every_scheme_runs_and_is_deterministic(positions, architecture):
    first = length_studies.addition_study(positions, "padded", architecture, **TINY)
    assert first == length_studies.addition_study(positions, "padded", architecture, **TINY)
    metrics, curves = json.loads(json.dumps(first))
    assert set(metrics["accuracy"]) == {"2", "3"} and len(curves["loss"]) == 4


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_fits_its_longest_text(format):
    generator = np.random.default_rng(0)
    for _ in range(20):
        tokens, _, _ = length_studies.draw("learned", format, np.full((8, 2), 15), 0, generator, True)
        assert tokens.shape[1] <= length_studies.longest_text(format, 15)


def test_coupled_ids_stay_within_the_table():
    longest, generator = length_studies.longest_text("padded", 15), np.random.default_rng(0)
    for training, digits in ((True, 5), (False, 15), (True, 15)):
        for _ in range(20):
            _, _, ids = length_studies.draw("coupled", "padded", np.full((8, 2), digits), longest, generator, training)
            assert 0 <= int(ids.min()) and int(ids.max()) < longest


def test_sums_of_one_digit_are_learned():
    found, curves = length_studies.addition_study(
        "learned", "padded", "decoder", 1, [1], n_layers=1, n_heads=2, width=32, steps=250, rate=3e-3, tested=50
    )
    assert found["token_accuracy"]["1"] > 0.6 and curves["loss"][-1] < 0.4 * curves["loss"][0]


@pytest.mark.parametrize(
    "changes, named",
    [
        (dict(format="plain", positions="coupled"), "ids couple digits only in padded text"),
        (dict(format="padded", positions="rotary"), "positions = 'rotary'"),
        (dict(format="backwards"), "format = 'backwards'"),
        (dict(tested_digits=[40]), "must be from 1 to 18"),
        (dict(width=30, n_heads=4), "width = 30 is not divisible by n_heads = 4"),
        (dict(steps=0), "steps = 0"),
    ],
)
def test_bad_input(changes, named):
    arguments = {"positions": "learned", "format": "plain", "architecture": "decoder", **TINY, **changes}
    with pytest.raises(ConfigError, match=named):
        length_studies.addition_study(**arguments)


def test_the_figure_has_every_scheme_once():
    drawn = [scheme for family in lengths.FAMILIES.values() for scheme in family]
    assert sorted(drawn) == sorted(SCHEMES) and {len(f) for f in lengths.FAMILIES.values()} == {5}
