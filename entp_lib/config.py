"""Frozen configurations, built strictly: an unknown name or a wrong type is an error before any compute.

A ``RunConfig`` holds everything that decides the outcome of one training run and nothing else, so that its hash
can name the record. Time limits, devices and thread counts are not part of it.
"""

import json
import math
from copy import deepcopy
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Literal

from entp_lib.architectures import ARCHITECTURES, POSITIONS
from entp_lib.validation import check_intervals, check_types, from_dict, one_of, require

MAX_CURVE_POINTS = 300

# Table 6 of the paper, and the 2-layer model of the authors' counting runs.
SIZES = {
    "extra_small": dict(n_layers=2, n_heads=2, width=128),
    "small": dict(n_layers=3, n_heads=3, width=192),
    "medium": dict(n_layers=6, n_heads=6, width=384),
    "large": dict(n_layers=12, n_heads=12, width=768),
    "small_deep": dict(n_layers=8, n_heads=2, width=128),
}


@dataclass(frozen=True)
class ModelConfig:
    """Shape of one Transformer; the architectures differ only in ``architecture`` and share all weights.

    ``hybrid`` is ENTP whose first layer is causal, as in the authors' early in-context script: not ENTP. With
    ``full_layers`` only so many of its last layers run afresh on every prefix: 2 or more, and not all (none is the
    decoder, all is ENTP). None: as many as the architecture has. ``input_dim`` and ``output_dim`` replace the token
    embedding and the tied head by linear maps for continuous inputs (B, T, input_dim) and outputs (N, output_dim).
    ``position_std`` and ``input_std`` are initial scales, of learned positions and of the map of continuous inputs.
    ``positions``: a scheme of ``entp_lib.positions``; ``none`` leaves positions out. ``dropout`` is 0.
    """

    architecture: str
    n_layers: int
    n_heads: int
    width: int
    vocab_size: int
    max_length: int
    dropout: float = 0.0
    positions: str = "learned"
    position_std: float = 0.02
    input_dim: int | None = None
    output_dim: int | None = None
    input_std: float = 0.02
    full_layers: int | None = None

    def __post_init__(self):
        check_types(self)
        one_of("architecture", self.architecture, ARCHITECTURES)
        one_of("positions", self.positions, POSITIONS)
        sizes = ("n_layers", "n_heads", "width", "max_length", "input_dim", "output_dim")
        stds = dict.fromkeys(("position_std", "input_std"), "[0, inf)")
        check_intervals(self, dict.fromkeys(sizes, "[1, inf)") | stds)
        require(self.dropout == 0, f"dropout = {self.dropout}: only 0.0 is supported")
        divisible = self.width % self.n_heads == 0
        require(divisible, f"width = {self.width} is not divisible by n_heads = {self.n_heads}")
        both = "input_dim and output_dim go together: set both for continuous inputs, or neither for tokens"
        require((self.input_dim is None) == (self.output_dim is None), both)
        some = self.vocab_size >= 1 or self.input_dim is not None
        require(some, f"vocab_size = {self.vocab_size}: must be at least 1 for a model of tokens")
        asked, kind, n = self.full_layers, ARCHITECTURES[self.architecture], self.n_layers
        if asked is None:
            return
        if kind.any_depth:
            hint = "none is architecture = 'decoder' (and a single one the same function), all of them is 'entp'"
            right = f"a {kind.label} of {n} layers has 2 to {n - 1}; {hint}" if n > 2 else f"needs 3 layers, not {n}"
            require(2 <= asked < n, f"full_layers = {asked}: {right}")
        else:
            free = " or ".join(repr(name) for name, other in ARCHITECTURES.items() if other.any_depth)
            right = f"{self.architecture!r} of {n} layers has {kind.full_layers(n)}; for another number use {free}"
            require(asked == kind.full_layers(n), f"full_layers = {asked}: {right}")
            object.__setattr__(self, "full_layers", None)  # a number that says nothing is not stored

    @property
    def recomputed_layers(self) -> int:
        """How many of the last layers run afresh on every prefix. A single one, read at its end only, is causal."""
        own = ARCHITECTURES[self.architecture].full_layers(self.n_layers)
        return own if self.full_layers is None else self.full_layers

    @property
    def open_prompt(self) -> bool:
        """Whether the tokens of the prompt all see each other, so that prompt lengths are needed."""
        return ARCHITECTURES[self.architecture].open_prompt

    def with_full_layers(self, full_layers: int) -> "ModelConfig":
        """The same shape with so many full layers: the decoder for 0, ENTP for all, else a hybrid.

        ConfigError for 1, which is the same function as the decoder, and for more than there are.
        """
        name = {0: "decoder", self.n_layers: "entp"}.get(full_layers, "hybrid")
        return replace(self, architecture=name, full_layers=full_layers)

    @classmethod
    def from_size(cls, size: str, **rest) -> "ModelConfig":
        """The model of a named size (``SIZES``), the other fields as given; ConfigError hints at wrong names."""
        one_of("size", size, SIZES)
        return from_dict(cls, {**SIZES[size], **rest})


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation of one run: AdamW, linear warm-up from 0, cosine to ``min_lr`` at ``decay_steps``, then flat.

    ``decay_steps`` None: the end of the run. A warm-up longer than the run ends with it, below ``max_lr``. ``min_lr``
    may be the larger one, as in the runs behind the paper's Table 3: the rate then rises.
    ``patience`` > 0 stops after so many evaluations without a better training loss, or whatever the task watches
    instead; ``stop_loss`` at the first evaluation with no more held-out loss (nats). At most 300 evaluations, so that a
    record stays small. ``gradient_shards`` is 1, and
    ``grad_clip`` None but in studies that clip by themselves.
    """

    steps: int
    batch_size: int = 64
    max_lr: float = 5e-4
    min_lr: float = 5e-5
    warmup_steps: int = 500
    decay_steps: int | None = None
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    grad_clip: float | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    eval_every: int = 100
    eval_sequences: int = 1024
    final_eval_sequences: int = 4096
    patience: int = 0
    gradient_shards: int = 1
    stop_loss: float | None = None

    def __post_init__(self):
        check_types(self)
        counts = ("steps", "batch_size", "eval_every", "eval_sequences", "final_eval_sequences")
        positive = dict.fromkeys(("max_lr", "grad_clip", "stop_loss"), "(0, inf)")
        others = dict.fromkeys(("weight_decay", "min_lr", "patience", "warmup_steps"), "[0, inf)")
        check_intervals(self, dict.fromkeys(counts, "[1, inf)") | positive | others | {"betas": "[0, 1)"})
        shards = self.gradient_shards
        require(shards == 1, f"gradient_shards = {shards}: only 1 is supported; use torchrun for one big run")
        right = f"must not lie before the end of warm-up ({self.warmup_steps})"
        late = self.decay_steps is None or self.decay_steps >= max(1, self.warmup_steps)
        require(late, f"decay_steps = {self.decay_steps}: {right}")
        points, fewest = -(-self.steps // self.eval_every), -(-self.steps // MAX_CURVE_POINTS)
        said = f"eval_every = {self.eval_every} with steps = {self.steps} would store {points} points"
        require(points <= MAX_CURVE_POINTS, f"{said}; at most {MAX_CURVE_POINTS}: use eval_every >= {fewest}")

    def lengthened(self, ratio: float, eval_every: int | None = None) -> "TrainConfig":
        """The same schedule over ``ratio`` times the steps, decay and evaluations to match: more compute, as planned.

        It gives a decoder the budget of ENTP, whose step costs ``ratio`` times as much. Warm-up stays as
        it is. ConfigError for a ratio that is not above 0 and finite.
        """
        require(0 < ratio < math.inf, f"ratio = {ratio}: must be above 0 and finite")
        steps, decay = round(self.steps * ratio), self.decay_steps and round(self.decay_steps * ratio)
        if eval_every is None:  # rounded down, it might make a point too many
            eval_every = max(1, round(self.eval_every * ratio), -(-steps // MAX_CURVE_POINTS))
        return replace(self, steps=steps, decay_steps=decay, eval_every=eval_every)


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


# Fields that came when there were records already: left out of the plain form at their default, so that these keep
# their names. By part of the configuration, "" for what is in none.
LATER_FIELDS = {
    "": {"start_from": ""},
    "model": {"input_std": 0.02, "full_layers": None},
    "train": {"gradient_shards": 1, "stop_loss": None},
}


def plain(config) -> dict[str, Any]:
    """A configuration as dictionaries of plain types; lists and parameters are its own, not copies."""
    found = {k: dict(vars(v)) if is_dataclass(v) else v for k, v in vars(config).items() if k != "_ids"}
    for part, defaults in LATER_FIELDS.items():
        holder = found.get(part, {}) if part else found
        for name, default in defaults.items():
            if name in holder and holder[name] == default:
                del holder[name]
    return found


def to_dict(config) -> dict[str, Any]:
    """A configuration as dictionaries, lists and tuples of plain types, which share nothing with it."""
    return deepcopy(plain(config))
