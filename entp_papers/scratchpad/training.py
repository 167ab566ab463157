"""Models trained on scratchpads of a few states and tested on more: inductive, ordinary and none (the paper's tasks).

The test sizes are beyond the trained ones; the formats keep the question's own length the same.

Letters: N counted tokens, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.experiments.studies import Study, at_least, columns, descend, largest
from entp_lib.models import build_model
from entp_lib.models.entp import Part
from entp_lib.records import resuming
from entp_lib.tasks.base import Batch, seed_from
from entp_lib.training.loop import learning_rate, make_optimizer
from entp_lib.validation import check_types, from_dict, one_of, require
from entp_papers.scratchpad.format import Example, Row, batch_of, chunks, ordinary
from entp_papers.scratchpad.generation import EXACT_WAYS, write, write_many
from entp_papers.scratchpad.problems import PROBLEMS, Problem

SPARE = 8  # tokens of context beyond the longest text, so that a model may err


@dataclass(frozen=True)
class ScratchpadConfig:
    """A task, a scratchpad, an architecture, and the sizes of questions to train and test.

    Inductive scratchpads are trained in chunks: to a decoder they are one loss with duplicated states, take a third
    less time and need no mask. With full attention a question would see all duplicated states at once.
    """

    problem: str
    problem_params: dict[str, Any]
    scratchpad: str
    architecture: str
    train_sizes: tuple[int, ...]
    test_sizes: tuple[int, ...]
    n_layers: int = 2
    n_heads: int = 4
    width: int = 64

    def __post_init__(self):
        check_types(self)
        one_of("problem", self.problem, PROBLEMS)
        one_of("scratchpad", self.scratchpad, ("inductive", "ordinary", "none"))
        one_of("architecture", self.architecture, ("decoder", "entp"))
        for name in ("train_sizes", "test_sizes"):
            sizes = getattr(self, name)
            require(len(sizes) > 0, f"{name} is empty: it must have at least one size of questions")
            require(list(sizes) == sorted(set(sizes)), f"{name} = {list(sizes)}: must ascend")

    def build_problem(self) -> Problem:
        """The task. ConfigError for parameters that it does not have."""
        return from_dict(PROBLEMS[self.problem], self.problem_params, f"{self.problem}.")

    def shown(self, problem: Problem, example: Example) -> Example:
        """The example as the model sees it: without states where there is no scratchpad."""
        return problem.without_states(example) if self.scratchpad == "none" else example

    def rows(self, problem: Problem, example: Example) -> list[Row]:
        """The rows that an example is trained on."""
        if self.scratchpad == "inductive":
            return chunks(problem.pad, example)
        return [ordinary(problem.pad, self.shown(problem, example))]


def draw(problem: Problem, count: int, sizes: Sequence[int], *seed: int | str) -> list[Example]:
    """Random examples of the sizes in turn, from a random one on."""
    generator = np.random.default_rng(seed_from(*seed))
    start = int(generator.integers(len(sizes)))
    return [problem.example(sizes[(start + i) % len(sizes)], generator) for i in range(count)]


def context_for(setting: ScratchpadConfig, problem: Problem) -> int:
    """Tokens that the longest rows and texts have, among some of every size.

    Of inductive scratchpads whole texts are read at the trained sizes alone, where ways of reading are compared.
    """
    longest = 0
    for size in {*setting.train_sizes, *setting.test_sizes}:
        for example in draw(problem, 32, [size], "context", size):
            rows = setting.rows(problem, example)
            if setting.scratchpad == "inductive" and size in setting.train_sizes:
                rows = [*rows, ordinary(problem.pad, example)]
            longest = max(longest, *(len(row.tokens) for row in rows))
    return longest + SPARE


def train_on(
    setting: ScratchpadConfig, train: TrainConfig, model_seed: int, data_seed: int
) -> tuple[nn.Module, list[float]]:
    """A trained model and its loss at every step, in nats per counted token; data depend on seed and step alone.

    Raises ConfigError where task and setting do not fit, and TrainingError where the loss stops being finite.
    """
    problem = setting.build_problem()
    shape = (setting.n_layers, setting.n_heads, setting.width, len(problem.vocabulary), context_for(setting, problem))
    model = build_model(ModelConfig(setting.architecture, *shape), seed_from("model", model_seed)).train()
    optimizer, losses = make_optimizer(model, train), []
    for step in resuming.steps(resuming.Progress({"loss": losses}), train.steps, model, optimizer):
        examples = draw(problem, train.batch_size, setting.train_sizes, "train", data_seed, step)
        batch = batch_of([row for e in examples for row in setting.rows(problem, e)], problem.pad.end)
        parts = (loss_of(model, batch, part) for part in model.plan(batch.wanted_BT))
        losses.append(descend(model, optimizer, parts, learning_rate(step, train), train.grad_clip))
    return model.eval(), losses


def loss_of(model: nn.Module, batch: Batch, part: Part) -> Tensor:
    """The share that a part of the counted tokens has in the mean loss of them all."""
    logits_NV, targets_N = model(batch.inputs_BT, part), batch.targets_BT[part.wanted_BT]
    return nn.functional.cross_entropy(logits_NV, targets_N, reduction="sum") / len(batch.targets_N)


@torch.no_grad()
def state_errors(
    model: nn.Module, setting: ScratchpadConfig, problem: Problem, examples: Sequence[Example]
) -> list[float]:
    """The share of states with a wrong token when all before them are right, by the number of the state written.

    ConfigError where a text is longer than the model's context.
    """
    wrong: dict[int, list[bool]] = {}
    for example in examples:
        batch = batch_of(setting.rows(problem, example), problem.pad.end)
        right_N = model(batch.inputs_BT, batch.wanted_BT).argmax(-1) == batch.targets_N
        seen = setting.shown(problem, example)
        lengths = [len(segment) for segment in problem.pad.segments(seen)[seen.given :]]
        for number, right in enumerate(right_N.split(lengths)):
            wrong.setdefault(number, []).append(not bool(right.all()))
    return [sum(found) / len(found) for _, found in sorted(wrong.items())]


def text_scores(
    model: nn.Module, setting: ScratchpadConfig, problem: Problem, examples: Sequence[Example]
) -> dict[str, float]:
    """The shares of scratchpads with the right answer and with every state right, written greedily by the model."""
    seen = [setting.shown(problem, e) for e in examples]
    texts = [e.states or (e.answer,) for e in seen]
    questions, given = [e.question for e in seen], [e.states[: e.given] for e in seen]
    inductive = setting.scratchpad == "inductive"
    found = write_many(model, problem.pad, questions, inductive, *limits(texts), given=given)
    whole = answers = [text == w.states for text, w in zip(texts, found, strict=True)]
    if setting.scratchpad != "none":
        answers = [problem.is_right(e, w.states) for e, w in zip(examples, found, strict=True)]
    return {"answers_right": sum(answers) / len(answers), "texts_right": sum(whole) / len(whole)}


def limits(texts: Sequence[Sequence[Sequence[int]]]) -> tuple[int, int]:
    """Most tokens of a state and most states that a model may write: more than the right texts have."""
    return max(len(state) for text in texts for state in text) + 2, max(map(len, texts)) + 1


def compare_ways(model: nn.Module, problem: Problem, examples: Sequence[Example]) -> dict[str, Any]:
    """Differences between the exact ways of reading on a trained decoder, in fp64, and the tokens read."""
    model, (tokens, count) = model.double(), limits([e.states for e in examples])
    apart, differing, read = 0.0, 0, dict.fromkeys(EXACT_WAYS, 0)
    for e in examples:
        given = e.states[: e.given]
        runs = {way: write(model, problem.pad, e.question, way, tokens, count, given=given) for way in EXACT_WAYS}
        first = runs["trimmed"]
        for way, found in runs.items():
            read[way] += found.forwards
            if found.states != first.states:
                differing += 1
            else:
                apart = max(apart, largest(found.logits_TV, first.logits_TV))
    model.float()
    return {"largest_difference": apart, "differing_texts": differing, "texts": len(examples), "tokens_read": read}


def training_study(setting: dict[str, Any], train: dict[str, Any], tested: int, compared: int, seed: int) -> Study:
    """One model trained and tested: ``tested`` questions of every size, ``compared`` of them read in every exact way.

    Curves: by test size the shares of right answers and texts, and the mean error of a state; by step the loss, thinned
    to 100 points; the error by number of the state at the largest size.
    """
    chosen, schedule = from_dict(ScratchpadConfig, setting, "setting."), from_dict(TrainConfig, train, "train.")
    at_least(1, tested=tested)
    problem = chosen.build_problem()
    model, losses = train_on(chosen, schedule, seed, seed)
    rows, by_state = [], []
    for size in chosen.test_sizes:
        examples = draw(problem, tested, [size], "test", seed, size)
        by_state = state_errors(model, chosen, problem, examples)
        scores = text_scores(model, chosen, problem, examples)
        rows.append({"size": size, **scores, "state_error": float(np.mean(by_state))})
    thinned = range(0, len(losses), -(-len(losses) // 100))
    curves = columns(rows) | {
        "step": [i + 1 for i in thinned],
        "train_loss": [losses[i] for i in thinned],
        "state": list(range(1, len(by_state) + 1)),
        "error_by_state": by_state,
    }
    metrics: dict[str, Any] = {"train_loss": losses[-1], "context": model.cfg.max_length}
    if compared and (chosen.architecture, chosen.scratchpad) == ("decoder", "inductive"):
        metrics["ways"] = compare_ways(model, problem, draw(problem, compared, chosen.train_sizes, "compare", seed))
    return metrics, curves
