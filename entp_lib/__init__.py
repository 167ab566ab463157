"""ENTP: encoder-only next token prediction.

    from entp_lib import ModelConfig, TrainConfig, Transformer, evaluate, generate, tasks, train

    task = tasks.Counting(length=10, seed_length=4, symbols=10)
    sizes = dict(n_layers=3, n_heads=4, width=64, vocab_size=task.vocab_size, max_length=10)
    model = Transformer(ModelConfig("entp", **sizes))
    state = train(model, task, TrainConfig(steps=1000, max_lr=3e-3))
    state.curves["token_accuracy"]  # and the loss, at each evaluation
    evaluate(model, task, 1000)  # next-token loss and accuracy on new sequences

Each name is loaded when it is first used, so that a command's help does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entp_lib import tasks
    from entp_lib.config import ModelConfig, TrainConfig
    from entp_lib.decoding import generate
    from entp_lib.evaluation import evaluate
    from entp_lib.model import Transformer
    from entp_lib.training import train

MODULES = {
    "ModelConfig": "config",
    "TrainConfig": "config",
    "Transformer": "model",
    "evaluate": "evaluation",
    "generate": "decoding",
    "train": "training",
}

__all__ = [
    "ModelConfig",
    "TrainConfig",
    "Transformer",
    "evaluate",
    "generate",
    "tasks",
    "train",
]


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return __all__


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name == "tasks":
        return importlib.import_module("entp_lib.tasks")
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"entp_lib.{MODULES[name]}"), name)
