"""Solvers that read the question against the generators' answers, and table 1's examples."""

import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import small_tasks
from entp_papers.compact.small_tasks import SMALL_TASKS


@pytest.mark.parametrize("name", SMALL_TASKS)
def test_solvers_agree_with_generators(name):
    answers = set()
    for seed in range(200):
        question, answer = small_tasks.ask(name, 1 + seed % 12, seed)
        assert SMALL_TASKS[name].solve(question) == answer, question
        answers.add(answer)
    assert len(answers) > 1


@pytest.mark.parametrize(
    "name, question, answer",
    [
        ("addition", "Compute: 53726 + 19177", "72903"),
        ("polynomial", "Evaluate x = 3 in (3x^0 + 1x^1 + 1x^2) mod 10", "5"),
        ("sorting", "Sort the numbers: 3, 1, 4, 1, 5", "1, 1, 3, 4, 5"),
        ("summation", "Compute: (1 + 2 + 3 + 4 + 7) mod 10", "7"),
        ("parity", "Is the number of 1's even in [1, 0, 0, 1, 1]?", "No"),
        ("chain", "a = +1; b = -a; c = +b; d = +c. Find c", "-1"),
    ],
)
def test_examples_of_table_1(name, question, answer):
    assert SMALL_TASKS[name].solve(question) == answer


@pytest.mark.parametrize(
    "name, size, named", [("parety", 3, "parity"), ("sorting", 0, "size = 0"), ("chain", 27, "26")]
)
def test_bad_input(name, size, named):
    with pytest.raises(ConfigError, match=named):
        small_tasks.ask(name, size, 0)
