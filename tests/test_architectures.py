"""The table of architectures, and how many layers of a configuration are full."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig, from_dict
from entp_lib.validation import ConfigError


def config(architecture="entp", n_layers=4, **rest):
    return ModelConfig(architecture, n_layers, 2, 16, 7, 9, **rest)


def test_full_layers_by_architecture():
    found = {name: [config(name, n).recomputed_layers for n in (1, 2, 4)] for name in ARCHITECTURES}
    assert found == {"decoder": [0, 0, 0], "prefix_decoder": [0, 0, 0], "entp": [1, 2, 4], "hybrid": [0, 1, 3]}
    assert [name for name in ARCHITECTURES if config(name).open_prompt] == ["prefix_decoder"]


@given(layers=st.integers(2, 9), data=st.data())
def test_a_number_of_full_layers_has_one_configuration(layers, data):
    """None is the decoder, all is ENTP, and what lies between survives being written and read."""
    base, full = config(n_layers=layers), data.draw(st.integers(0, layers).filter(lambda n: n != 1))
    found = base.with_full_layers(full)
    assert found.recomputed_layers == full
    assert from_dict(ModelConfig, asdict(found)) == found
    assert found.architecture == ("decoder" if full == 0 else "entp" if full == layers else "hybrid")
    if full in (0, layers):
        assert found == replace(base, architecture=found.architecture)


@pytest.mark.parametrize(
    ("architecture", "full", "message"),
    [
        ("hybrid", 1, "full_layers = "),
        ("hybrid", 4, "full_layers = "),
        ("entp", 3, "full_layers = "),
        ("decoder", 2, "full_layers = "),
        ("hybrid", 2.0, "full_layers = "),
        ("hybird", None, "architecture = "),
    ],
)
def test_what_an_architecture_cannot_have_is_named(architecture, full, message):
    with pytest.raises(ConfigError, match=message):
        config(architecture, full_layers=full)
