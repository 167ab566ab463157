"""Checks of the arguments of ``Transformer.forward``, so that a mistake is named before anything is computed.

Entries of a tensor are looked at on a CPU only.

Letters: B batch, T tokens.
"""

import torch
from torch import Tensor

from entp_lib.config import ModelConfig

WHOLE = (torch.int64, torch.int32)
REAL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_inputs(
    cfg: ModelConfig,
    inputs: Tensor,
    scored_BT: Tensor | None,
    prompt_lengths_B: Tensor | None,
    positions_BT: Tensor | None = None,
    mask_BTT: Tensor | None = None,
    table: int | None = None,
) -> None:
    """Raise ValueError, naming the value, where an argument does not fit the model of ``cfg``.

    ``table``: how many positions the model's scheme has vectors for, None for any number.
    """
    if cfg.input_dim is None:
        check_tensor("inputs", inputs, WHOLE, (None, None), "token ids, torch.int64,")
    else:
        check_tensor("inputs", inputs, REAL, (None, None, cfg.input_dim), "real numbers")
    batch, length = inputs.shape[:2]
    if batch * length == 0:
        raise ValueError(f"inputs of shape {tuple(inputs.shape)}: the batch is empty")
    if scored_BT is not None:
        check_tensor("scored", scored_BT, (torch.bool,), (batch, length), "a boolean mask")
    if length > cfg.max_length:
        raise ValueError(f"inputs of {length} tokens: beyond the model's max_length of {cfg.max_length}")
    if cfg.input_dim is None:
        check_ids("token id", inputs, cfg.vocab_size)
    if positions_BT is not None:
        check_tensor("positions", positions_BT, WHOLE, (batch, length), "whole numbers, torch.int64,")
        check_ids("position id", positions_BT, table)
    if mask_BTT is not None:
        want = "boolean, True where a token (row) may see another (column),"
        check_tensor("mask", mask_BTT, (torch.bool,), (batch, length, length), want)
        hidden_BT = ~mask_BTT.diagonal(dim1=1, dim2=2)
        if can_look(mask_BTT) and hidden_BT.any():
            row, place = hidden_BT.nonzero()[0].tolist()
            raise ValueError(f"mask: token {place} of row {row} may not see itself; every token must")
    if not cfg.open_prompt:
        return
    if not isinstance(prompt_lengths_B, Tensor) or prompt_lengths_B.shape != (batch,):
        raise ValueError(f"a prefix decoder needs prompt_lengths of shape ({batch},), how many tokens each prompt has")
    if can_look(inputs):
        whole = not prompt_lengths_B.is_floating_point() and prompt_lengths_B.dtype != torch.bool
        if not whole or not 1 <= int(prompt_lengths_B.min()) <= int(prompt_lengths_B.max()) <= length:
            raise ValueError(f"prompt_lengths must be whole numbers from 1 to the {length} tokens of a row")
        if scored_BT is not None and (scored_BT & ~after_prompts(inputs, prompt_lengths_B)).any():
            raise ValueError("a scored position lies inside the prompt, where a prefix decoder sees its answer")


def check_tensor(name: str, value: object, kinds: tuple, shape: tuple, want: str) -> None:
    """Raise ValueError for what is no tensor of one of the types ``kinds`` and of ``shape``, where None is any size."""
    sizes = f"({', '.join('BT'[i] if size is None else str(size) for i, size in enumerate(shape))})"
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}: must be a tensor, {want} of shape {sizes}")
    fits = value.dim() == len(shape) and all(a in (None, b) for a, b in zip(shape, value.shape, strict=True))
    if not fits or value.dtype not in kinds:
        found = f"{name} of shape {tuple(value.shape)} and type {value.dtype}"
        raise ValueError(f"{found}: must be {want} of shape {sizes}")


def check_ids(name: str, ids: Tensor, size: int | None) -> None:
    """Raise ValueError for ids below 0, or not below ``size``."""
    if can_look(ids):
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or (size is not None and high >= size):
            right = "0 or more" if size is None else f"from 0 to {size - 1}"
            raise ValueError(f"{name} {low if low < 0 else high}: must be {right}")


def after_prompts(inputs: Tensor, prompt_lengths_B: Tensor) -> Tensor:
    """Boolean (B, T): positions from each prompt's last token on."""
    return torch.arange(inputs.shape[1], device=inputs.device) >= prompt_lengths_B[:, None] - 1


def can_look(x: Tensor) -> bool:
    """Whether entries of a tensor may decide: not in compilation, nor on a GPU, whose queue would stall."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
