"""One table for a class of mistakes: every call of it raises an error that names what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest


def named(*cases: tuple[Callable[[], Any], str]) -> Callable:
    """A test of (call, pattern): the call raises ValueError, as ConfigError is one, with a message that matches."""

    @pytest.mark.parametrize(("call", "name"), cases)
    def test(call, name):
        with pytest.raises(ValueError, match=name):
            call()

    return test
