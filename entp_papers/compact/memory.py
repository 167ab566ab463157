"""Studies of small Transformers, trained in parallel, that memorise random sequences (§2.1.2).

Embedding, positions and output layer are frozen; attention and feed-forward weights are trained.
The width of a head is a separate parameter, not the width divided by the heads. If only the token
after the last position is scored, the last layer is computed only there, and its keys and values
are never formed: a query meets the inputs themselves through W_Kᵀ q, and W_V is applied after the
weighted sum. With one layer, the decoder and ENTP are then the same function.

Weights are plain dictionaries of tensors, so that ``torch.func.vmap`` can run many models of one
shape, each on its own library: one batched product replaces R small ones. Adam works entry by
entry, so every run takes the same steps as alone, up to the order of additions in a matrix product.

Letters: R runs, K sequences of a library, S sequences of a batch, T tokens, D width, H heads, K
head width, V symbols.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from entp_lab.configs import Json
from entp_lab.studies import Study, at_least
from entp_lib.tasks.base import generator_for
from entp_lib.validation import require
from entp_papers.compact import laws

Weights = dict[str, Tensor]
# Sizes in a row that no run recalls whole before the search for the largest library ends.
FAILED_SIZES = 2


@dataclass(frozen=True)
class MemoryConfig:
    """Shape of a model that predicts the last of ``length`` tokens from the others.

    ``feed_forward``: ``trained``; ``identity`` adds its input unchanged to the residual path;
    ``none`` drops it. ``attention_weights``: ``all`` four matrices, or only ``query_key``, with
    which a head's output is the weighted inputs themselves (equation 4) and there must be one head.
    ``scored``: whether the loss is on the ``last`` token only or on ``every`` token but the first,
    which only a decoder predicts in one pass; recall is of the last token either way.
    """

    symbols: int = 32
    length: int = 8
    width: int = 32
    n_heads: int = 1
    head_width: int = 32
    n_layers: int = 1
    architecture: Literal["decoder", "entp"] = "decoder"
    feed_forward: Literal["trained", "identity", "none"] = "trained"
    attention_weights: Literal["all", "query_key"] = "all"
    scored: Literal["last", "every"] = "last"

    def __post_init__(self):
        require(
            self.scored == "last" or self.architecture == "decoder",
            'scored = "every" needs architecture = "decoder": ENTP would take a pass per prefix',
        )


@dataclass(frozen=True)
class Schedule:
    """Adam over a library for at most ``epochs`` passes.

    Recalled sequences are counted every ``count_every`` epochs. ``steps`` > 0 sets the number of
    optimiser steps instead of epochs. ``patience`` > 0 ends a run after that many counts without a
    better one; ``until_all`` ends it as soon as every sequence is right.
    """

    epochs: int = 100
    steps: int = 0
    batch_size: int = 512
    rate: float = 1e-3
    count_every: int = 4
    patience: int = 0
    until_all: bool = False

    def passes(self, library: int) -> int:
        """Return the number of epochs over a library of ``library`` sequences."""
        per_epoch = -(-library // self.batch_size)
        return -(-self.steps // per_epoch) if self.steps else self.epochs


def layer_shapes(cfg: MemoryConfig) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return the shape of a layer's weights, and how many inputs each sums over (a bias none)."""
    D = cfg.width
    H = cfg.n_heads
    K = cfg.head_width
    shapes = {"query": ((H, D, K), D), "key": ((H, D, K), D)}
    if cfg.attention_weights == "all":
        shapes |= {"value": ((H, D, K), D), "out": ((H, K, D), H * K)}
    if cfg.feed_forward == "trained":
        shapes |= {"up": ((D, 4 * D), D), "up_bias": ((4 * D,), 0)}
        shapes |= {"down": ((4 * D, D), 4 * D), "down_bias": ((D,), 0)}
    return shapes


def initial_weights(cfg: MemoryConfig, generator: torch.Generator) -> tuple[Weights, Weights]:
    """Draw the trained attention and feed-forward weights, and the frozen others.

    Trained weights are uniform within ±1/√(inputs), like PyTorch's linear layers, with biases 0.
    Embedding and positions are N(0, 1), the output layer is N(0, 1/D).
    """
    D = cfg.width
    trained = {}
    for layer in range(cfg.n_layers):
        for name, (shape, inputs) in layer_shapes(cfg).items():
            weight = torch.zeros(shape)
            if inputs:
                weight = (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(inputs)
            trained[f"{layer}.{name}"] = weight
    return trained, {
        "embedding": torch.randn(cfg.symbols, D, generator=generator),
        "positions": torch.randn(cfg.length - 1, D, generator=generator),
        "output": torch.randn(D, cfg.symbols, generator=generator) / math.sqrt(D),
    }


def parameter_count(cfg: MemoryConfig) -> int:
    """Count the trained parameters."""
    return cfg.n_layers * sum(math.prod(shape) for shape, _ in layer_shapes(cfg).values())


def scored_logits(
    cfg: MemoryConfig, trained: Weights, frozen: Weights, tokens_ST: Tensor
) -> Tensor:
    """Return logits (S, P, V) after the P scored of T = length - 1 tokens: the last, or all."""
    x_STD = frozen["embedding"][tokens_ST] + frozen["positions"]
    layers = [
        {name: trained[f"{i}.{name}"] for name in layer_shapes(cfg)} for i in range(cfg.n_layers)
    ]
    for layer in layers if cfg.scored == "every" else layers[:-1]:
        x_STD = feed_forward(cfg, layer, x_STD + attend_all(cfg, layer, normed(x_STD)))
    if cfg.scored == "every":
        return normed(x_STD) @ frozen["output"]
    x_SD = x_STD[:, -1] + attend_last(cfg, layers[-1], normed(x_STD))
    return (normed(feed_forward(cfg, layers[-1], x_SD)) @ frozen["output"])[:, None]


def normed(x: Tensor) -> Tensor:
    """Apply layer norm without weights; those of the linear maps around it are enough."""
    return F.layer_norm(x, x.shape[-1:])


def attend_last(cfg: MemoryConfig, layer: Weights, z_STD: Tensor) -> Tensor:
    """Return the attention output (S, D) of the last position, which sees all under any mask."""
    q_HSK = z_STD[:, -1] @ layer["query"]
    seeking_SHD = (q_HSK @ layer["key"].transpose(1, 2)).transpose(0, 1) * cfg.head_width**-0.5
    weights_SHT = F.softmax(seeking_SHD @ z_STD.transpose(1, 2), -1)
    mixed_HSD = (weights_SHT @ z_STD).transpose(0, 1)
    if cfg.attention_weights == "query_key":
        return mixed_HSD[0]
    return (mixed_HSD @ layer["value"] @ layer["out"]).sum(0)


def attend_all(cfg: MemoryConfig, layer: Weights, z_STD: Tensor) -> Tensor:
    """Return every position's attention output (S, T, D), causal in a decoder, full in ENTP."""

    def project(name: str) -> Tensor:  # every head's projection, (S, H, T, K), in one product
        projected = z_STD @ layer[name].transpose(0, 1).reshape(cfg.width, -1)
        return projected.unflatten(2, (cfg.n_heads, -1)).transpose(1, 2)

    scores_SHTT = project("query") @ project("key").transpose(2, 3) * cfg.head_width**-0.5
    if cfg.architecture == "decoder":
        later_TT = torch.ones(scores_SHTT.shape[2:], dtype=torch.bool).triu(1)
        scores_SHTT = scores_SHTT.masked_fill(later_TT, -math.inf)
    weights_SHTT = F.softmax(scores_SHTT, -1)
    if cfg.attention_weights == "query_key":
        return weights_SHTT[:, 0] @ z_STD
    mixed_SHTK = weights_SHTT @ project("value")
    return mixed_SHTK.transpose(1, 2).flatten(2) @ layer["out"].flatten(0, 1)


def feed_forward(cfg: MemoryConfig, layer: Weights, x: Tensor) -> Tensor:
    """Return the residual stream after the feed-forward sublayer."""
    if cfg.feed_forward == "none":
        return x
    z = normed(x)
    if cfg.feed_forward == "identity":
        return x + z
    hidden = F.gelu(z @ layer["up"] + layer["up_bias"])
    return x + hidden @ layer["down"] + layer["down_bias"]


class Outcome(NamedTuple):
    """Right sequences of each run at each count, the epochs of the counts, and for each run the
    best count, the epoch at which it ended (0: it did not) and the losses.
    """

    right_RC: Tensor
    epochs_C: list[int]
    best_R: Tensor
    ended_R: Tensor
    losses_RC: Tensor


def draw_libraries(cfg: MemoryConfig, library: int, seeds: Sequence[int]) -> Tensor:
    """Draw independent uniform tokens (R, K, T) (§2.1.3).

    A smaller library is the first part of a larger one.
    """
    shape = (library, cfg.length)
    generators = (generator_for("cpu", "library", seed) for seed in seeds)
    return torch.stack([torch.randint(cfg.symbols, shape, generator=g) for g in generators])


def draw_models(cfg: MemoryConfig, seeds: Sequence[int]) -> tuple[Weights, Weights]:
    """Draw the trained and the frozen weights of a model per seed, stacked over runs."""
    drawn = [initial_weights(cfg, generator_for("cpu", "memory", seed)) for seed in seeds]
    trained, frozen = (
        {name: torch.stack([weights[name] for weights in part]) for name in part[0]}
        for part in zip(*drawn, strict=True)
    )
    for weight in trained.values():
        weight.requires_grad_(True)
    return trained, frozen


def train(cfg: MemoryConfig, schedule: Schedule, library: int, seeds: Sequence[int]) -> Outcome:
    """Train one model per seed on a library, and count the sequences whose last token it recalls.

    The order of an epoch depends only on the run's seed and the epoch. A run that has ended keeps
    its result while the others go on.
    """
    at_least(1, runs=len(seeds), library=library, batch_size=schedule.batch_size)
    libraries_RKT = draw_libraries(cfg, library, seeds)
    trained, frozen = draw_models(cfg, seeds)
    optimizer = torch.optim.Adam(trained.values(), lr=schedule.rate)
    runs = len(seeds)

    def logits(tokens_RST: Tensor) -> Tensor:
        run = vmap(lambda t, f, tokens_ST: scored_logits(cfg, t, f, tokens_ST))
        return run(trained, frozen, tokens_RST[..., :-1])

    def mean_losses(batch_RST: Tensor) -> Tensor:
        logits_RSPV = logits(batch_RST)
        targets_RSP = batch_RST[..., -logits_RSPV.shape[2] :]
        losses_N = F.cross_entropy(
            logits_RSPV.flatten(0, 2), targets_RSP.flatten(), reduction="none"
        )
        return losses_N.view(runs, -1).mean(1)

    @torch.no_grad()
    def count_right() -> Tensor:
        return sum(
            (logits(part_RST)[:, :, -1].argmax(-1) == part_RST[..., -1]).sum(1)
            for part_RST in libraries_RKT.split(4096, dim=1)
        )

    best_R = torch.zeros(runs, dtype=torch.long)
    counts_without_a_better_one_R = torch.zeros(runs, dtype=torch.long)
    ended_R = torch.zeros(runs, dtype=torch.long)  # 0 while a run goes on
    epochs = []
    right = []
    losses = []
    last_epoch = schedule.passes(library)
    for epoch in range(1, last_epoch + 1):
        orders = [
            torch.randperm(library, generator=generator_for("cpu", seed, epoch)) for seed in seeds
        ]
        total_R = torch.zeros(runs)
        for pick_RS in torch.stack(orders).split(schedule.batch_size, dim=1):
            index_RST = pick_RS[..., None].expand(-1, -1, cfg.length)
            loss_R = mean_losses(libraries_RKT.gather(1, index_RST))
            optimizer.zero_grad(set_to_none=True)
            loss_R.sum().backward()
            optimizer.step()
            total_R += loss_R.detach() * pick_RS.shape[1] / library
        if epoch % schedule.count_every and epoch < last_epoch:
            continue
        right_R = count_right()
        epochs.append(epoch)
        right.append(right_R)
        losses.append(total_R)
        going_R = ended_R == 0
        better_R = right_R > best_R
        best_R = torch.where(going_R & better_R, right_R, best_R)
        counts_without_a_better_one_R = torch.where(better_R, 0, counts_without_a_better_one_R + 1)
        ends_R = counts_without_a_better_one_R >= (schedule.patience or math.inf)
        if schedule.until_all:
            ends_R |= right_R == library
        ended_R = torch.where(going_R & ends_R, epoch, ended_R)
        if ended_R.all():
            break
    return Outcome(torch.stack(right, 1), epochs, best_R, ended_R, torch.stack(losses, 1))


# The studies. ``model`` and ``schedule`` hold the fields of ``MemoryConfig`` and ``Schedule``. Runs
# differ in weights, library and order, all drawn from the run's number; a run has the same library
# for every model.


def capacity_study(model: Json, schedule: Json, library: int, runs: int) -> Study:
    """Count the most sequences of a large library that are recalled at any time: its capacity
    (§3.1).

    Metrics: ``capacity`` by run, the ``best`` of them (as the paper reports), ``offset`` of
    guessing (equation 8), ``above_chance`` (best less offset), ``parameters``,
    ``memories_per_parameter`` (equation 12). Curves: mean count and loss by epoch.
    """
    cfg = MemoryConfig(**model)
    plan = Schedule(**schedule)
    outcome = train(cfg, plan, library, range(runs))
    best = int(outcome.best_R.max())
    offset = library / cfg.symbols
    parameters = parameter_count(cfg)
    metrics = {
        "capacity": outcome.best_R.tolist(),
        "best": best,
        "offset": offset,
        "above_chance": best - offset,
        "parameters": parameters,
        "memories_per_parameter": best / parameters,
        "epochs": outcome.epochs_C[-1],
        "steps": outcome.epochs_C[-1] * -(-library // plan.batch_size),
        "stopped_by_patience": int(outcome.ended_R.count_nonzero()),
    }
    curves = {
        "epoch": outcome.epochs_C,
        "right": outcome.right_RC.double().mean(0).tolist(),
        "loss": outcome.losses_RC.double().mean(0).tolist(),
    }
    return metrics, curves


def largest_library_study(model: Json, schedule: Json, sizes: list[int], runs: int) -> Study:
    """Find the largest of ``sizes`` that is recalled whole, each trained from new weights (§3.1).

    Sizes, which ascend, are tried until no run recalls two in a row. Metrics: ``largest`` by run (0
    for none) and the ``best``; curves: sequences recalled by size, best run.
    """
    cfg = MemoryConfig(**model)
    plan = Schedule(until_all=True, **schedule)
    largest_R = torch.zeros(runs, dtype=torch.long)
    right = {}
    failed = 0
    for size in sizes:
        best_R = train(cfg, plan, size, range(runs)).best_R
        largest_R = torch.where(best_R == size, size, largest_R)
        right[size] = int(best_R.max())
        failed = 0 if right[size] == size else failed + 1
        if failed == FAILED_SIZES:
            break
    metrics = {
        "largest": largest_R.tolist(),
        "best": int(largest_R.max()),
        "parameters": parameter_count(cfg),
        "bounded": failed == FAILED_SIZES,
    }
    return metrics, {"size": list(right), "right": list(right.values())}


def shatter_study(model: Json, schedule: Json, library: int, runs: int) -> Study:
    """Count epochs until a small library is recalled whole; fit a negative binomial (figure 8).

    Metrics: ``fit``, by maximum likelihood, to the runs that recalled the library (None if fewer
    than 50 did, or if ``laws.fit_epochs`` gives None), (r, p) by ``moments``, ``unfinished`` runs,
    and ``mean_best``, the mean of the most sequences that a run recalled. Curves: the epochs,
    sorted.
    """
    cfg = MemoryConfig(**model)
    plan = Schedule(until_all=True, count_every=1, **schedule)
    outcome = train(cfg, plan, library, range(runs))
    epochs = sorted(outcome.ended_R[outcome.ended_R.bool()].tolist())
    moments = laws.by_moments(epochs) if len(epochs) >= 50 else None
    metrics = {
        "runs": runs,
        "unfinished": runs - len(epochs),
        "fit": laws.fit_epochs(epochs) if moments else None,
        "moments": list(moments) if moments else None,
        "parameters": parameter_count(cfg),
        "mean_best": float(outcome.best_R.double().mean()),
        "limit": plan.passes(library),
    }
    return metrics, {"epochs": epochs}
