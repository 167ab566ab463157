"""One backbone, three objectives (§2.2, §3.2): masked, causal and ENTP's, on the same text windows.

All models have the same weights at the start and the same shape; the vocabulary has one token more
than the text's, the mask token. The masked model predicts the next token at an appended mask token.
All also predict a token in the middle of a window, and are fine-tuned to find the one token of a
window that was replaced, a misprint.

Letters: B batch, T tokens, W = T + 1 tokens of a window, C candidates, V vocabulary.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab import resume as resuming
from entp_lab.budgets import token_forwards
from entp_lab.configs import Json
from entp_lab.studies import Study, descend, seeded
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.model import Transformer, build_model
from entp_lib.tasks import Text
from entp_lib.tasks.base import draw_on_side, generator_for, seed_from
from entp_lib.training import learning_rate, make_optimizer
from entp_lib.validation import from_dict, one_of, require
from entp_papers.encoder_decoder.parts import (
    Masking,
    full_states,
    mask_tokens,
    masked_loss,
)

Labelled = tuple[Tensor, Tensor]  # windows (B, W) and the places of their misprints (B,)

EVAL_BATCH = 256
TUNING_RATE = 1e-3


@dataclass(frozen=True)
class ObjectiveConfig:
    """An objective, the sizes of model and tests, and ``text``, parameters of the task ``Text``.

    ``text``'s ``prefixes`` concern only ENTP. ``labelled``: windows for fine-tuning, learned
    ``epochs`` times; ``tested``: windows for every final score; ``curve_windows``: windows for
    scores during training; ``candidates``: windows that a causal model fills in by trying all
    tokens.
    """

    objective: str
    text: Json
    n_layers: int
    n_heads: int
    width: int
    labelled: int
    epochs: int
    tested: int
    curve_windows: int
    candidates: int
    positions: str = "learned"

    @cached_property
    def task(self) -> Text:
        """Return the text. ConfigError for parameters that it does not have."""
        return from_dict(Text, self.text, "text.")

    @cached_property
    def masking(self) -> Masking:
        """Return the masking, whose mask token is the one after the text's vocabulary."""
        mask = self.task.vocab_size
        return Masking(mask + 1, mask, (mask,))

    def model(self) -> ModelConfig:
        """Return the backbone: a masked model has ENTP's weights and reads whole texts."""
        return ModelConfig(
            "decoder" if self.objective == "causal" else "entp",
            self.n_layers,
            self.n_heads,
            self.width,
            self.masking.vocab_size,
            self.task.context + 1,
            positions=self.positions,
        )


def windows(
    task: Text, count: int, *seed: int | str, evaluating: bool = False
) -> tuple[Tensor, Tensor]:
    """Draw texts (B, T + 1), which depend only on the seed, and a mask (B, T) of scored ones."""
    batch = task.batch(generator_for("cpu", *seed), count, evaluating)
    return torch.cat([batch.inputs_BT, batch.targets_BT[:, -1:]], 1), batch.scored_BT


def step_losses(
    setting: ObjectiveConfig, model: Transformer, window_BW, scored_BT, *seed
) -> Iterator[Tensor]:
    """Yield the loss of one step in parts to be added up, each with its own gradient."""
    if setting.objective == "masked":
        yield masked_loss(
            model, mask_tokens(window_BW, setting.masking, generator_for("cpu", "mask", *seed))
        )
        return
    if setting.objective == "causal":  # a decoder scores every position at no extra cost
        scored_BT = torch.ones_like(scored_BT)
    for part in model.plan(scored_BT):
        targets_N = window_BW[:, 1:][part.scored_BT]
        loss = F.cross_entropy(model(window_BW[:, :-1], part), targets_N)
        yield loss * (len(targets_N) / int(scored_BT.sum()))


def train(
    setting: ObjectiveConfig, schedule: TrainConfig, model_seed: int, data_seed: int
) -> tuple[Transformer, dict[str, list], dict[str, float]]:
    """Train a model; return it, its curves, and its cost without evaluation.

    Windows depend only on ``data_seed`` and the step. TrainingError if the loss stops being finite.
    """
    setting.task.facts()
    model = build_model(setting.model(), seed_from("model", model_seed)).train()
    optimizer = make_optimizer(model, schedule)
    shown = windows(setting.task, setting.curve_windows, "curve", data_seed, evaluating=True)[0]
    curves = {"step": [], "train_loss": [], "next_token_loss": []}
    # ``loss`` and ``steps`` are those since the last point of the curves.
    spent = {"token_forwards": 0, "cpu_seconds": 0.0, "loss": 0.0, "steps": 0}
    for step in resuming.steps(curves, schedule.steps, model, optimizer, spent):
        begun = time.process_time()
        window_BW, scored_BT = windows(
            setting.task, schedule.batch_size, "objectives", data_seed, step
        )
        parts = step_losses(setting, model, window_BW, scored_BT, data_seed, step)
        loss = descend(model, optimizer, parts, learning_rate(step, schedule), schedule.grad_clip)
        spent["cpu_seconds"] += time.process_time() - begun
        if setting.objective == "masked":  # which also reads a window's last token
            spent["token_forwards"] += window_BW.numel()
        else:
            spent["token_forwards"] += token_forwards(model.cfg, scored_BT)
        spent["loss"] += loss
        spent["steps"] += 1
        if step % schedule.eval_every == 0 or step == schedule.steps:
            curves["step"].append(step)
            curves["train_loss"].append(spent["loss"] / spent["steps"])
            curves["next_token_loss"].append(float(next_token_losses(setting, model, shown).mean()))
            spent["loss"] = 0.0
            spent["steps"] = 0
    return model.eval(), curves, {name: spent[name] for name in ("token_forwards", "cpu_seconds")}


@torch.no_grad()
def next_token_losses(setting: ObjectiveConfig, model: Transformer, window_BW: Tensor) -> Tensor:
    """Return the loss (B, T) in nats of every next token after its prefix, by the model's own way.

    The mask token is excluded from the answers, because it never occurs.
    """
    found = []
    mask = setting.masking.mask_token
    for rows_BW in window_BW.split(EVAL_BATCH):
        if setting.objective == "masked":  # which reads the token at an appended mask
            logits = []
            for t in range(1, rows_BW.shape[1]):
                states_BTD = full_states(model, F.pad(rows_BW[:, :t], (0, 1), value=mask))
                logits.append(F.log_softmax(model.head(states_BTD[:, -1]), -1))
            logits_BTV = torch.stack(logits, 1)
        else:
            logits_BTV = model(rows_BW[:, :-1]).unflatten(0, (len(rows_BW), -1))
        found.append(
            F.cross_entropy(
                logits_BTV[..., :mask].transpose(1, 2), rows_BW[:, 1:], reduction="none"
            )
        )
    return torch.cat(found)


@torch.no_grad()
def middle_losses(setting: ObjectiveConfig, model: Transformer, window_BW: Tensor) -> Tensor:
    """Return the loss (B,) of the token in the middle.

    A masked model sees both sides, the others only the left.
    """
    middle = window_BW.shape[1] // 2
    mask = setting.masking.mask_token
    if setting.objective != "masked":
        return next_token_losses(setting, model, window_BW[:, : middle + 1])[:, -1]
    hidden_BW = window_BW.clone()
    hidden_BW[:, middle] = mask
    logits = [
        model.head(full_states(model, rows)[:, middle]) for rows in hidden_BW.split(EVAL_BATCH)
    ]
    return F.cross_entropy(torch.cat(logits)[:, :mask], window_BW[:, middle], reduction="none")


@torch.no_grad()
def candidate_losses(setting: ObjectiveConfig, model: Transformer, window_BW: Tensor) -> Tensor:
    """Return the loss (B,) of the middle token by a causal model that tries every token.

    By Bayes' rule p(x_i | both sides) is p(window with x_i) over the sum for all candidates, which
    takes C passes in place of one.
    """
    middle = window_BW.shape[1] // 2
    vocabulary = setting.task.vocab_size
    found = []
    for window_W in window_BW:
        tried_CW = window_W.repeat(vocabulary, 1)
        tried_CW[:, middle] = torch.arange(vocabulary)
        log_p_C = -next_token_losses(setting, model, tried_CW)[:, middle - 1 :].sum(1)
        found.append(-F.log_softmax(log_p_C, 0)[window_W[middle]])
    return torch.stack(found)


def ngram_losses(task: Text, window_BW: Tensor) -> dict[str, float]:
    """Return the losses (nats) of unigrams and bigrams counted on 4 million training tokens."""
    tokens = np.asarray(task.tokens().parts["train"][:4_000_000]).astype(np.int64)
    size = task.vocab_size
    pairs = np.bincount(tokens[:-1] * size + tokens[1:], minlength=size**2).reshape(size, size)
    single = pairs.sum(0) + 0.5
    single /= single.sum()
    # Pairs that never occurred are predicted from single tokens.
    pairs = (pairs + 5 * single) / (pairs.sum(1, keepdims=True) + 5)
    before = window_BW[:, :-1].numpy()
    after = window_BW[:, 1:].numpy()
    return {
        "unigram": float(-np.log(single[after]).mean()),
        "bigram": float(-np.log(pairs[before, after]).mean()),
    }


def misprinted(window_BT: Tensor, *seed: int | str) -> Labelled:
    """Replace one token of each text, at a random place, by a different token of the texts."""
    generator = generator_for("cpu", "misprints", *seed)
    rows, length = window_BT.shape
    place_B = torch.randint(length, (rows,), generator=generator)
    before_B = window_BT[torch.arange(rows), place_B]
    all_N = window_BT.flatten()
    require(len(all_N.unique()) > 1, "the texts have one token alone: no other can be a misprint")
    other_B = draw_on_side(  # tokens as often as they occur
        lambda count: all_N[torch.randint(len(all_N), (count,), generator=generator)],
        rows,
        before_B.eq,
        False,
    )
    changed_BT = window_BT.clone()
    changed_BT[torch.arange(rows), place_B] = other_B
    return changed_BT, place_B


class Pointer(nn.Module):
    """Scores (B, W) of every place, a linear map of final states (causal ones for a decoder).

    A softmax over the places says where the misprint is. ``prompt_PD``: vectors put before every
    text, if any.
    """

    def __init__(self, model: Transformer, seed: int):
        super().__init__()
        self.model = model
        self.score = nn.Linear(model.cfg.width, 1)
        self.prompt_PD: nn.Parameter | None = None
        with torch.no_grad():
            self.score.weight.normal_(0, 0.02, generator=seeded(seed))
            self.score.bias.zero_()

    def forward(self, tokens_BT: Tensor) -> Tensor:
        causal = self.model.cfg.architecture == "decoder"
        states_BTD = full_states(self.model, tokens_BT, causal, self.prompt_PD)
        return self.score(states_BTD[:, -tokens_BT.shape[1] :])[..., 0]


def misprints_found(
    setting: ObjectiveConfig, schedule: TrainConfig, pointer: Pointer, seed: int, **options: Any
) -> float:
    """Fine-tune as ``setting`` says; return the share of new texts whose misprint is found.

    ``options``: of ``fine_tuned``.
    """
    learned_BW, _ = windows(setting.task, setting.labelled, "tune", seed)
    tested_BW, _ = windows(setting.task, setting.tested, "test", seed, evaluating=True)
    return fine_tuned(
        pointer,
        misprinted(learned_BW, "tune", seed),
        misprinted(tested_BW, "test", seed),
        epochs=setting.epochs,
        batch_size=schedule.batch_size,
        seed=seed,
        **{"lr": TUNING_RATE} | options,
    )


def fine_tuned(
    pointer: Pointer,
    learned: Labelled,
    tested: Labelled,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
    groups: list[Json] | None = None,
    before_epoch: Callable[[int], None] = lambda epoch: None,
) -> float:
    """Fine-tune, all rates falling to 0; return the share of texts whose misprint scores highest.

    ``groups``: parameter groups, each with its own learning rate; ``before_epoch``: a function of
    the epoch that may freeze or unfreeze parameters.
    """
    pointer.train()
    optimizer = torch.optim.AdamW(groups or pointer.parameters(), lr=lr, weight_decay=0.01)
    windows_BT, places_B = learned
    steps = epochs * -(-len(windows_BT) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for epoch in range(epochs):
        before_epoch(epoch)
        order = torch.randperm(
            len(windows_BT), generator=generator_for("cpu", "misprint order", seed, epoch)
        )
        for pick in order.split(batch_size):
            loss = F.cross_entropy(pointer(windows_BT[pick]), places_B[pick])
            descend(pointer, optimizer, [loss], clip=1.0)
            schedule.step()
    pointer.eval()
    with torch.no_grad():
        found = [pointer(rows_BT).argmax(-1) for rows_BT in tested[0].split(EVAL_BATCH)]
    return float((torch.cat(found) == tested[1]).double().mean())


def objective_study(setting: Json, train_config: Json, model_seed: int, data_seed: int) -> Study:
    """Train, test and fine-tune one model, and fine-tune an untrained one for comparison.

    Metrics: losses in nats on the same windows for every objective, the ``accuracy`` of finding
    misprints, and ``fresh_accuracy`` from untrained weights. Curves by step, and the next token's
    loss by length of the prefix.
    """
    chosen = ObjectiveConfig(**setting)
    one_of("objective", chosen.objective, ("causal", "entp", "masked"))
    schedule = from_dict(TrainConfig, train_config, "train_config.")
    model, curves, spent = train(chosen, schedule, model_seed, data_seed)
    task = chosen.task
    shown_BW = windows(task, chosen.tested, "final", data_seed, evaluating=True)[0]
    by_position_T = next_token_losses(chosen, model, shown_BW).double().mean(0)
    middle_B = middle_losses(chosen, model, shown_BW).double()
    candidate_loss = None
    if chosen.objective == "causal":
        few_B = candidate_losses(chosen, model, shown_BW[: chosen.candidates])
        candidate_loss = float(few_B.double().mean())
    metrics = {
        "next_token_loss": float(by_position_T.mean()),
        "middle_loss": float(middle_B.mean()),
        "middle_loss_few": float(middle_B[: chosen.candidates].mean()),
        "candidate_loss": candidate_loss,
        "train_loss": curves["train_loss"][-1],
        **ngram_losses(task, shown_BW),
        **spent,
        **task.facts(),
    }
    starts = {"accuracy": model}
    if chosen.objective != "entp":  # its fresh weights and attention are those of a masked model
        starts["fresh_accuracy"] = build_model(chosen.model(), seed_from("model", model_seed))
    for name, start in starts.items():
        pointer = Pointer(start, seed_from("score", data_seed))
        metrics[name] = misprints_found(chosen, schedule, pointer, data_seed)
    curves |= {
        "prefix": list(range(1, len(by_position_T) + 1)),
        "loss_by_prefix": by_position_T.tolist(),
    }
    return metrics, curves
