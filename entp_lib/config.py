"""Frozen configurations of models and training, checked before any compute."""

from dataclasses import dataclass
from typing import Literal

from entp_lib.architectures import ARCHITECTURES, POSITIONS
from entp_lib.validation import check_intervals, check_types, one_of, require

MAX_CURVE_POINTS = 300

# Table 6 of the paper, and the 2-layer model of the authors' counting runs.
SIZES = {
    "extra_small": dict(n_layers=2, n_heads=2, width=128),
    "small": dict(n_layers=3, n_heads=3, width=192),
    "medium": dict(n_layers=6, n_heads=6, width=384),
    "large": dict(n_layers=12, n_heads=12, width=768),
    "small_deep": dict(n_layers=8, n_heads=2, width=128),
}

MODEL_INTERVALS = {
    "n_layers": "[1, inf)",
    "n_heads": "[1, inf)",
    "width": "[1, inf)",
    "max_length": "[1, inf)",
    "input_dim": "[1, inf)",
    "output_dim": "[1, inf)",
    "position_std": "[0, inf)",
    "input_std": "[0, inf)",
}
TRAIN_INTERVALS = {
    "steps": "[1, inf)",
    "batch_size": "[1, inf)",
    "eval_every": "[1, inf)",
    "eval_sequences": "[1, inf)",
    "final_eval_sequences": "[1, inf)",
    "max_lr": "(0, inf)",
    "grad_clip": "(0, inf)",
    "stop_loss": "(0, inf)",
    "weight_decay": "[0, inf)",
    "min_lr": "[0, inf)",
    "patience": "[0, inf)",
    "warmup_steps": "[0, inf)",
    "betas": "[0, 1)",
}


@dataclass(frozen=True)
class ModelConfig:
    """Shape of one Transformer. Architectures share all weights and differ only in attention.

    ``architecture``: ``decoder``, ``prefix_decoder``, ``entp`` or ``hybrid``. ``vocab_size``: how
    many token ids there are, and logits. ``max_length``: the most tokens of an input.
    ``hybrid`` is ENTP with a causal first layer, as in the authors' early in-context script; it
    is not ENTP, and with two layers it computes what the decoder does. ``full_layers``: how
    many of a hybrid's last layers run again on every prefix, at least 2 and not all of them
    (with none it would be the decoder, with all ENTP); None for the architecture's default.
    ``input_dim`` and ``output_dim`` replace the token embedding and the tied head by linear
    maps for continuous inputs (B, T, input_dim) and outputs (N, output_dim). ``position_std``
    and ``input_std``: initial standard deviations of learned positions and of the map of
    continuous inputs. ``positions``: a scheme of ``entp_lib.positions``; ``none`` leaves
    positions out. ``dropout`` must be 0.
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
        check_intervals(self, MODEL_INTERVALS)
        require(self.dropout == 0, f"dropout = {self.dropout}: only 0.0 is supported")
        require(
            self.width % self.n_heads == 0,
            f"width = {self.width} is not divisible by n_heads = {self.n_heads}",
        )
        require(
            (self.input_dim is None) == (self.output_dim is None),
            "input_dim and output_dim go together: set both for continuous inputs, or neither "
            "for tokens",
        )
        least = 1 if self.input_dim is None else 0
        require(
            self.vocab_size >= least,
            f"vocab_size = {self.vocab_size}: must be at least {least}",
        )
        if self.full_layers is not None:
            self.check_full_layers(self.full_layers)

    def check_full_layers(self, asked: int) -> None:
        """Raise ConfigError for a number of full layers that the architecture cannot have."""
        kind = ARCHITECTURES[self.architecture]
        usual = kind.full_layers(self.n_layers)
        if not kind.any_depth:
            require(
                asked == usual,
                f"full_layers = {asked}: {self.architecture!r} of {self.n_layers} layers has "
                f"{usual}; for another number use 'hybrid'",
            )
            # the usual number is not stored
            object.__setattr__(self, "full_layers", None)
        else:
            require(
                2 <= asked < self.n_layers,
                f"full_layers = {asked}: a hybrid of {self.n_layers} layers has 2 to "
                f"{self.n_layers - 1}; none is architecture = 'decoder' (and a single one the same "
                "function), all of them is 'entp'",
            )

    @property
    def recomputed_layers(self) -> int:
        """How many of the last layers run again on every prefix; one alone equals a causal one."""
        if self.full_layers is not None:
            return self.full_layers
        return ARCHITECTURES[self.architecture].full_layers(self.n_layers)

    @property
    def open_prompt(self) -> bool:
        """Whether the prompt's tokens all see each other, so that its length is needed."""
        return ARCHITECTURES[self.architecture].open_prompt


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation of one run: AdamW, linear warm-up, cosine to ``min_lr``, then flat.

    A step takes ``batch_size`` sequences. ``weight_decay`` spares vectors (biases, norms).
    ``precision``: ``bf16`` multiplies matrices in bf16, while weights and optimiser stay in fp32.
    After every ``eval_every`` steps, and the last, ``eval_sequences`` sequences are scored.
    The cosine ends at ``decay_steps``, by default at the last step. A warm-up longer than the run
    is cut off below ``max_lr``: by default 100 steps end at a fifth of it. ``min_lr`` may exceed
    ``max_lr``, as in the runs behind the paper's Table 3; the learning rate then rises.
    ``patience`` > 0 stops after that many evaluations without a new minimum of the training loss,
    or of the task's own ``patience_score``. ``stop_loss`` stops at the first evaluation whose
    held-out loss (nats) is at most this. A run has at most 300 evaluations, so that its record
    stays small. ``gradient_shards`` must be 1. ``final_eval_sequences`` is for ``entp_lab``, which
    scores the end; ``train`` ignores it. ``grad_clip``: the largest norm of a step's gradients,
    None for any.
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
    gradient_shards: Literal[1] = 1
    stop_loss: float | None = None

    def __post_init__(self):
        check_types(self)
        check_intervals(self, TRAIN_INTERVALS)
        require(
            self.decay_steps is None or self.decay_steps >= max(1, self.warmup_steps),
            f"decay_steps = {self.decay_steps}: must not lie before the end of warm-up "
            f"({self.warmup_steps})",
        )
        points = -(-self.steps // self.eval_every)
        require(
            points <= MAX_CURVE_POINTS,
            f"eval_every = {self.eval_every} with steps = {self.steps} would store {points} "
            f"points; at most {MAX_CURVE_POINTS}: use eval_every >= "
            f"{-(-self.steps // MAX_CURVE_POINTS)}",
        )
