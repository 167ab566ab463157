"""Fixtures of the ENTP paper's tests."""

import pytest

from entp_papers.entp.downstream import clutrr


@pytest.fixture
def few_stories(monkeypatch):
    """Let the embedded parts of CLUTRR be short."""
    monkeypatch.setattr(clutrr, "EMBEDDED", {"validation": 48, "test": 128})
    clutrr.encoded.cache_clear()
    clutrr.held_out.cache_clear()
    yield
    clutrr.encoded.cache_clear()
    clutrr.held_out.cache_clear()
