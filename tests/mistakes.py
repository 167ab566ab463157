"""One table for a class of mistakes: every call of it raises an error that names what is wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def named(*cases: tuple[Callable[[], Any], str]) -> Callable:
    """A test of (call, pattern): the call raises ValueError, as ConfigError is one, with a message
    that matches.
    """

    @pytest.mark.parametrize(("call", "name"), cases)
    def test(call, name):
        with pytest.raises(ValueError, match=name):
            call()

    return test


@contextmanager
def one_line(error: type[Exception], match: str) -> Iterator[None]:
    """Expect an error whose message matches and is a single line."""
    with pytest.raises(error, match=match) as raised:
        yield
    assert "\n" not in str(raised.value)
