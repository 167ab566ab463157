"""The page on the library: its examples run, are short, and its costs are those counted."""

import re
from pathlib import Path

import pytest
import torch

from entp_lib import costs
from entp_lib.config import ModelConfig

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(2))
def test_the_examples_run_and_are_short(number, capsys):
    example = EXAMPLES[number]
    assert len([line for line in example.splitlines() if line.strip()]) <= 25
    scope = {"__name__": "page"}
    exec(compile(example.replace("steps=600", "steps=3"), "library.md", "exec"), scope)
    if number == 0:
        assert [score[:2] for score in scope["scores"]] == [
            (m, s) for m in ("decoder", "entp") for s in range(3)
        ]
        assert len(scope["state"].curves["loss"]) == 1
    else:
        assert scope["logits"].shape == (int(scope["scored"].sum()), 10)
        assert torch.isfinite(scope["loss"])


def test_the_costs_are_those_that_are_counted():
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        length = int(row[0])
        every = range(1, length + 1)
        eight = [length * k // 8 for k in range(1, 9)]
        for lengths, ratio in zip((every, eight), row[1:], strict=True):
            entp, decoder = (
                costs.training_pass(ModelConfig(name, 3, 4, 64, 64, length), lengths, length)
                for name in ("entp", "decoder")
            )
            assert entp / decoder == pytest.approx(float(ratio), rel=0.03)
