"""NSP, SOP and RTD (§2.2.2) on the small model, and ways to fine-tune a trained model (§5.2).

    NSP   does the second half of a window follow the first, or is it another window's?
    SOP   are the two halves in their order, or exchanged?
    RTD   which tokens were replaced by those that a small masked model drew?

A pair is read at a token in front of it; for RTD a window is read at every token. Losses are the
published sums: of masked tokens and of pairs in BERT and ALBERT, of the generator and 50 times the
discriminator in ELECTRA.

Letters: B batch, T tokens, W tokens of a window, D width.
"""

import copy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from entp_lab import resume as resuming
from entp_lab.configs import Json
from entp_lab.studies import Study, at_least, columns, descend
from entp_lib.config import TrainConfig
from entp_lib.model import Block, build_model, parameter_count
from entp_lib.tasks.base import generator_for, seed_from
from entp_lib.training import learning_rate, make_optimizer
from entp_lib.validation import from_dict, one_of
from entp_papers.encoder_decoder.objectives import (
    TUNING_RATE,
    ObjectiveConfig,
    Pointer,
    misprints_found,
    train,
    windows,
)
from entp_papers.encoder_decoder.parts import full_states, mask_tokens

DISCRIMINATOR_WEIGHT = 50.0
RANK = 4  # of low-rank changes; also the tokens of a prompt
BOTTLENECK = 8  # of an adapter
FEW_WEIGHTS_RATE = 10.0  # times the learning rate where the backbone is frozen

# --- Objectives -----------------------------------------------------------------------------------


class Head(nn.Module):
    """A linear map, an activation, and a linear map to the answers.

    NSP and SOP have two answers, from the state of the first token. RTD, ``by_token``, has a number
    per token, positive where it was replaced.
    """

    def __init__(self, width: int, by_token: bool):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, 1 if by_token else 2)
        self.activation = F.gelu if by_token else torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(x)))


def token_loss(logits_BT1: Tensor, replaced_BT: Tensor) -> Tensor:
    """Return the binary loss over all tokens."""
    return F.binary_cross_entropy_with_logits(logits_BT1[..., 0], replaced_BT.to(logits_BT1))


def draw_pairs(
    window_BW: Tensor, objective: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw pairs of halves (B, W), half of them wrong, and their labels (B,): 1 for wrong."""
    half = (window_BW.shape[1] - 1) // 2
    first = window_BW[:, :half]
    second = window_BW[:, half : 2 * half]
    wrong_B = torch.randint(2, (len(window_BW),), generator=generator)
    exchanged = [second, first] if objective == "sop" else [first, second.roll(1, 0)]
    pairs = torch.where(
        wrong_B[:, None] == 1, torch.cat(exchanged, 1), torch.cat([first, second], 1)
    )
    return pairs, wrong_B


class Pretraining(nn.Module):
    """The backbone, the head of its objective, and for RTD a generator of one layer."""

    def __init__(self, setting: ObjectiveConfig, seed: int):
        super().__init__()
        self.setting = setting
        cfg = setting.model()
        self.model = build_model(cfg, seed_from("model", seed))
        by_token = setting.objective == "rtd"
        small = replace(cfg, n_layers=1)
        self.generator = build_model(small, seed_from("generator", seed)) if by_token else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_from("head", seed))
            self.head = Head(cfg.width, by_token)

    def forward(self, window_BW: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, the model's answers and the right ones: 1 if not as in the text."""
        masking = self.setting.masking
        if self.generator is None:
            pairs, wrong_B = draw_pairs(window_BW, self.setting.objective, draw)
            batch = mask_tokens(pairs, masking, draw)
            read = F.pad(batch.inputs_BT, (1, 0), value=masking.mask_token)
            states_BTD = full_states(self.model, read)
            logits_B2 = self.head(states_BTD[:, 0])
            selected_BT = batch.selected_BT
            logits_NV = self.model.head(states_BTD[:, 1:][selected_BT])
            loss = F.cross_entropy(logits_NV, pairs[selected_BT])
            loss = loss + F.cross_entropy(logits_B2, wrong_B)
            return loss, logits_B2.argmax(-1), wrong_B
        batch = mask_tokens(window_BW, masking, draw)
        selected_BW = batch.selected_BT
        logits_NV = self.generator.head(full_states(self.generator, batch.inputs_BT)[selected_BW])
        chances_NV = logits_NV[:, : masking.mask_token].detach().softmax(-1)
        seen_BW = window_BW.clone()
        seen_BW[selected_BW] = torch.multinomial(chances_NV, 1, generator=draw)[:, 0]
        replaced_BW = (seen_BW != window_BW).long()
        logits_BW1 = self.head(full_states(self.model, seen_BW))
        loss = F.cross_entropy(logits_NV, window_BW[selected_BW])
        loss = loss + DISCRIMINATOR_WEIGHT * token_loss(logits_BW1, replaced_BW)
        return loss, (logits_BW1[..., 0] > 0).long(), replaced_BW


def pretraining_study(setting: Json, train_config: Json, seed: int) -> Study:
    """Train by NSP, SOP or RTD, test on new windows, and fine-tune to find misprints.

    Metrics: ``told_apart``, the mean of the accuracies on pairs or tokens that are as in the text
    and on those that are not (1/2 by guessing); the ``loss``; ``accuracy`` of finding misprints.
    Curves: the loss by step.
    """
    chosen = ObjectiveConfig(**setting)
    schedule = from_dict(TrainConfig, train_config, "train_config.")
    one_of("objective", chosen.objective, ("nsp", "sop", "rtd"))
    at_least(2, batch_size=schedule.batch_size, tested=chosen.tested)
    learner = Pretraining(chosen, seed).train()
    optimizer = make_optimizer(learner, schedule)
    curves = {"loss": []}
    for step in resuming.steps(curves, schedule.steps, learner, optimizer):
        window_BW, _ = windows(chosen.task, schedule.batch_size, "objectives", seed, step)
        loss, _, _ = learner(window_BW, generator_for("cpu", "pretraining", seed, step))
        rate = learning_rate(step, schedule)
        curves["loss"].append(descend(learner, optimizer, [loss], rate, schedule.grad_clip))
    shown_BW, _ = windows(chosen.task, chosen.tested, "final", seed, evaluating=True)
    with torch.no_grad():
        loss, answers, right = learner.eval()(
            shown_BW, generator_for("cpu", "pretraining test", seed)
        )
    shares = [float((answers == right)[right == kind].double().mean()) for kind in (0, 1)]
    pointer = Pointer(learner.model, seed_from("score", seed))
    metrics = {
        "told_apart": sum(shares) / 2,
        "loss": float(loss),
        "accuracy": misprints_found(chosen, schedule, pointer, seed),
    }
    return metrics | chosen.task.facts(), curves


# --- Fine-tuning ----------------------------------------------------------------------------------


class LowRank(nn.Module):
    """A matrix plus a product of two thin ones, of which ``up`` starts at 0 (LoRA)."""

    def __init__(self, weight: Tensor, generator: torch.Generator):
        super().__init__()
        rows, inputs = weight.shape
        self.down = nn.Parameter(torch.randn(RANK, inputs, generator=generator) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(rows, RANK))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


class Adapted(nn.Module):
    """A block, and after it x + up(gelu(down(x))), whose ``up`` starts at 0."""

    def __init__(self, block: Block, width: int, generator: torch.Generator):
        super().__init__()
        self.block = block
        self.down = nn.Linear(width, BOTTLENECK)
        self.up = nn.Linear(BOTTLENECK, width)
        with torch.no_grad():
            self.down.weight.normal_(0, width**-0.5, generator=generator)
            for p in (self.down.bias, self.up.weight, self.up.bias):
                p.zero_()

    def forward(self, x_BTD: Tensor, *mask: Tensor | None, **options: Any) -> Tensor:
        x_BTD = self.block(x_BTD, *mask, **options)
        return x_BTD + self.up(F.gelu(self.down(x_BTD)))


def train_norms(pointer: Pointer, generator: torch.Generator) -> None:
    for module in pointer.model.modules():
        if isinstance(module, nn.LayerNorm):
            module.requires_grad_(True)


def add_low_rank(pointer: Pointer, generator: torch.Generator) -> None:
    for block in pointer.model.blocks:
        for linear in (block.attention.qkv, block.attention.out):
            parametrize.register_parametrization(
                linear, "weight", LowRank(linear.weight, generator)
            )


def add_adapters(pointer: Pointer, generator: torch.Generator) -> None:
    blocks = pointer.model.blocks
    for i, block in enumerate(blocks):
        blocks[i] = Adapted(block, pointer.model.cfg.width, generator)


def add_prompt(pointer: Pointer, generator: torch.Generator) -> None:
    width = pointer.model.cfg.width
    pointer.prompt_PD = nn.Parameter(0.02 * torch.randn(RANK, width, generator=generator))


# With a frozen backbone, what is trained besides the head: functions of a pointer and a generator.
FROZEN = {
    "head alone": lambda pointer, generator: None,
    "head and layer norms": train_norms,
    "low rank (LoRA)": add_low_rank,
    "adapters": add_adapters,
    "prompt": add_prompt,
}
WAYS = ("all weights", "rates halved by layer", "layers thawed in turn", *FROZEN)


def from_top(pointer: Pointer) -> list[list[nn.Parameter]]:
    """Return the parameters from the head down to the embeddings, layer by layer."""
    model = pointer.model
    top = [*pointer.score.parameters(), *model.ln_f.parameters()]
    bottom = [*model.embedding.parameters(), *model.positions.parameters()]
    return [top, *([*block.parameters()] for block in reversed(model.blocks)), bottom]


def prepared(pointer: Pointer, way: str, lr: float, seed: int) -> Json:
    """Freeze or add weights as ``way`` says; return the options of ``fine_tuned`` for it."""
    if way in FROZEN:
        pointer.model.requires_grad_(False)
        FROZEN[way](pointer, generator_for("cpu", "tuning", seed))
        return {"lr": FEW_WEIGHTS_RATE * lr}
    if way == "rates halved by layer":
        parts = enumerate(from_top(pointer))
        return {"groups": [{"params": part, "lr": lr * 0.5**depth} for depth, part in parts]}
    if way == "layers thawed in turn":

        def thaw(epoch: int) -> None:
            for depth, part in enumerate(from_top(pointer)):
                for p in part:
                    p.requires_grad_(depth <= epoch)

        return {"before_epoch": thaw}
    return {}


def tuning_study(setting: Json, train_config: Json, seed: int) -> Study:
    """Pretrain one model, and fine-tune it in every way to find misprints; a row per way.

    ``trained``: the number of trained weights, and ``share``, their share of all; ``accuracy``: the
    share of misprints found.
    """
    chosen = ObjectiveConfig(**setting)
    schedule = from_dict(TrainConfig, train_config, "train_config.")
    model, _, _ = train(chosen, schedule, seed, seed)
    rows = []
    for way in WAYS:
        pointer = Pointer(copy.deepcopy(model), seed_from("score", seed))
        options = prepared(pointer, way, TUNING_RATE, seed)
        found = misprints_found(chosen, schedule, pointer, seed, **options)
        trained = sum(p.numel() for p in pointer.parameters() if p.requires_grad)
        whole = parameter_count(pointer, embeddings=True)
        rows.append({"way": way, "trained": trained, "share": trained / whole, "accuracy": found})
    return {"chance": 1 / (chosen.task.context + 1), **chosen.task.facts()}, columns(rows)
