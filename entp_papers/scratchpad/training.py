"""Models trained on scratchpads of a few states and tested on more.

The test sizes are beyond the trained ones; the formats keep the question's own length the same.

Letters: N counted tokens, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from entp_lab import resume as resuming
from entp_lab.configs import Json
from entp_lab.studies import Study, columns, descend
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.model import build_model
from entp_lib.tasks.base import Batch, seed_from
from entp_lib.training import learning_rate, make_optimizer
from entp_lib.validation import from_dict
from entp_papers.scratchpad.format import Example, Row, batch_of, chunks, ordinary, segments_of
from entp_papers.scratchpad.generation import EXACT_WAYS, Limits, compare_written, write, write_many
from entp_papers.scratchpad.problems import PROBLEMS, Problem

SPARE = 8  # tokens of context beyond the longest text, so that a model may err


@dataclass(frozen=True)
class ScratchpadConfig:
    """A task, a scratchpad, an architecture, and the sizes of questions to train and test.

    Inductive scratchpads are trained in chunks: in a decoder these have the same loss as duplicated
    states, take a third less time and need no mask. With full attention a question would see all
    duplicated states at once.
    """

    problem: str
    problem_params: Json
    scratchpad: str
    architecture: str
    train_sizes: tuple[int, ...]
    test_sizes: tuple[int, ...]
    n_layers: int = 2
    n_heads: int = 4
    width: int = 64

    @cached_property
    def task(self) -> Problem:
        return PROBLEMS[self.problem](**self.problem_params)

    def shown(self, example: Example) -> Example:
        """Return the example as the model sees it: without states where there is no scratchpad."""
        return self.task.without_states(example) if self.scratchpad == "none" else example

    def rows(self, example: Example) -> list[Row]:
        """Return the rows that an example is trained on."""
        if self.scratchpad == "inductive":
            return chunks(example)
        return [ordinary(self.shown(example))]

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Batch the rows of examples, padded with the end token."""
        return batch_of([row for example in examples for row in self.rows(example)])

    def draw(self, count: int, sizes: Sequence[int], *seed: int | str) -> list[Example]:
        """Draw examples of the sizes in turn, starting at a random one."""
        generator = np.random.default_rng(seed_from(*seed))
        start = int(generator.integers(len(sizes)))
        return [self.task.example(sizes[(start + i) % len(sizes)], generator) for i in range(count)]

    def context(self) -> int:
        """Return the length of the longest row or text in a sample of every size, plus ``SPARE``.

        Whole texts of inductive scratchpads count only at the trained sizes, at which ways of
        reading are compared.
        """
        longest = 0
        for size in {*self.train_sizes, *self.test_sizes}:
            for example in self.draw(32, [size], "context", size):
                rows = self.rows(example)
                if self.scratchpad == "inductive" and size in self.train_sizes:
                    rows = [*rows, ordinary(example)]
                longest = max(longest, *(len(row.tokens) for row in rows))
        return longest + SPARE


def train_on(
    setting: ScratchpadConfig, train: TrainConfig, seed: int
) -> tuple[nn.Module, list[float]]:
    """Train a model; return it and its loss at every step, in nats per counted token.

    Raises TrainingError where the loss stops being finite.
    """
    cfg = ModelConfig(
        setting.architecture,
        setting.n_layers,
        setting.n_heads,
        setting.width,
        len(setting.task.vocabulary),
        setting.context(),
    )
    model = build_model(cfg, seed_from("model", seed)).train()
    optimizer = make_optimizer(model, train)
    losses = []
    for step in resuming.steps({"loss": losses}, train.steps, model, optimizer):
        batch = setting.batch(
            setting.draw(train.batch_size, setting.train_sizes, "train", seed, step)
        )
        count = len(batch.targets_N)
        parts = (
            F.cross_entropy(
                model(batch.inputs_BT, part), batch.targets_BT[part.scored_BT], reduction="sum"
            )
            / count
            for part in model.plan(batch.scored_BT)
        )
        losses.append(descend(model, optimizer, parts, learning_rate(step, train), train.grad_clip))
    return model.eval(), losses


@torch.no_grad()
def state_errors(
    model: nn.Module, setting: ScratchpadConfig, examples: Sequence[Example]
) -> list[float]:
    """Measure the share of wrong states when all before them are right, by number of the state."""
    wrong = {}
    for example in examples:
        batch = setting.batch([example])
        seen = setting.shown(example)
        right_N = model(batch.inputs_BT, batch.scored_BT).argmax(-1) == batch.targets_N
        lengths = [len(segment) for segment in segments_of(seen)[seen.given :]]
        for number, right in enumerate(right_N.split(lengths)):
            wrong.setdefault(number, []).append(not bool(right.all()))
    return [sum(found) / len(found) for found in wrong.values()]


def text_scores(
    model: nn.Module, setting: ScratchpadConfig, examples: Sequence[Example]
) -> dict[str, float]:
    """Score greedy scratchpads: shares with the right answer and with every state right."""
    seen = [setting.shown(e) for e in examples]
    texts = [e.states or (e.answer,) for e in seen]
    found = write_many(model, seen, setting.scratchpad == "inductive", limits(texts))
    whole = answers = [text == w.states for text, w in zip(texts, found, strict=True)]
    if setting.scratchpad != "none":
        answers = [setting.task.is_right(e, w.states) for e, w in zip(examples, found, strict=True)]
    return {"answers_right": sum(answers) / len(answers), "texts_right": sum(whole) / len(whole)}


def limits(texts: Sequence[Sequence[Sequence[int]]]) -> Limits:
    """Allow a model more tokens per state and more states than the right texts have."""
    return max(len(state) for text in texts for state in text) + 2, max(map(len, texts)) + 1


def compare_ways(model: nn.Module, examples: Sequence[Example]) -> Json:
    """Compare the exact ways of reading on a trained decoder, in fp64, and count tokens read."""
    model.double()
    most = limits([e.states for e in examples])
    apart = 0.0
    differing = 0
    read = dict.fromkeys(EXACT_WAYS, 0)
    for e in examples:
        given = e.states[: e.given]
        runs = {way: write(model, e.question, way, most, given=given) for way in EXACT_WAYS}
        for way, found in runs.items():
            differs, difference = compare_written(runs["trimmed"], found)
            differing += differs
            apart = max(apart, difference)
            read[way] += found.forwards
    model.float()
    return {
        "largest_difference": apart,
        "differing_texts": differing,
        "texts": len(examples),
        "tokens_read": read,
    }


def training_study(setting: Json, train: Json, tested: int, compared: int, seed: int) -> Study:
    """Train and test one model on ``tested`` questions of every size.

    Curves: by test size the shares of right answers and texts, and the mean error of a state; by
    step the loss, thinned to 100 points; the error by number of the state at the largest size.
    """
    chosen = ScratchpadConfig(**setting)
    schedule = from_dict(TrainConfig, train, "train.")
    model, losses = train_on(chosen, schedule, seed)
    rows = []
    by_state = []
    for size in chosen.test_sizes:
        examples = chosen.draw(tested, [size], "test", seed, size)
        by_state = state_errors(model, chosen, examples)
        rows.append(
            {
                "size": size,
                **text_scores(model, chosen, examples),
                "state_error": float(np.mean(by_state)),
            }
        )
    thinned = range(0, len(losses), -(-len(losses) // 100))
    curves = columns(rows) | {
        "step": [i + 1 for i in thinned],
        "train_loss": [losses[i] for i in thinned],
        "state": list(range(1, len(by_state) + 1)),
        "error_by_state": by_state,
    }
    metrics = {"train_loss": losses[-1], "context": model.cfg.max_length}
    if (chosen.architecture, chosen.scratchpad) == ("decoder", "inductive"):
        examples = chosen.draw(compared, chosen.train_sizes, "compare", seed)
        metrics["ways"] = compare_ways(model, examples)
    return metrics, curves
