"""One table for a class of mistakes: every call of it raises an error that names what is wrong."""

from contextlib import contextmanager

import pytest

from entp_lib.validation import ConfigError


def named(*cases):
    """A test of (call, pattern): the call raises ValueError, as ConfigError is one, with a message
    that matches.
    """

    @pytest.mark.parametrize(("call", "name"), cases)
    def test(call, name):
        with pytest.raises(ValueError, match=name):
            call()

    return test


@contextmanager
def one_line(error, match):
    """Expect an error whose message matches and is a single line."""
    with pytest.raises(error, match=match) as raised:
        yield raised
    assert "\n" not in str(raised.value)


def refused(match):
    """Expect an error of input, in a single line that matches."""
    return one_line(ConfigError, match)
