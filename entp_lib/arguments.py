"""Check the arguments of ``Transformer.forward``, so that a mistake is named before computing.

Values inside a tensor are checked on a CPU only.

Letters: B batch, T tokens.
"""

import torch
from torch import Tensor

from entp_lib.config import ModelConfig

INTEGERS = (torch.int64, torch.int32)
REALS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NARROW = ("mps",)  # types of devices that have no float64


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

    ``table``: number of positions that the model's scheme has vectors for, None for any number.
    """
    if cfg.input_dim is None:
        check_tensor(
            "inputs", inputs, INTEGERS, (None, None), "token ids, torch.int64,"
        )
    else:
        check_tensor(
            "inputs", inputs, REALS, (None, None, cfg.input_dim), "real numbers"
        )
    shape = inputs.shape[:2]
    if 0 in shape:
        raise ValueError(f"inputs of shape {tuple(inputs.shape)}: the batch is empty")
    if scored_BT is not None:
        check_tensor("scored", scored_BT, (torch.bool,), shape, "a boolean mask")
    _, length = shape
    if length > cfg.max_length:
        raise ValueError(
            f"inputs of {length} tokens: beyond the model's max_length of {cfg.max_length}"
        )
    if cfg.input_dim is None:
        check_ids("token id", inputs, cfg.vocab_size)
    if positions_BT is not None:
        check_tensor(
            "positions", positions_BT, INTEGERS, shape, "whole numbers, torch.int64,"
        )
        check_ids("position id", positions_BT, table)
    if mask_BTT is not None:
        check_mask(mask_BTT, (*shape, length))
    if cfg.open_prompt:
        check_prompts(inputs, scored_BT, prompt_lengths_B)


def check_mask(mask_BTT: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a mask is boolean, has this shape and lets each token see itself."""
    wanted = "boolean, True where a token (row) may see another (column),"
    check_tensor("mask", mask_BTT, (torch.bool,), shape, wanted)
    hidden_BT = ~mask_BTT.diagonal(dim1=1, dim2=2)
    if can_look(mask_BTT) and hidden_BT.any():
        row, place = hidden_BT.nonzero()[0].tolist()
        raise ValueError(
            f"mask: token {place} of row {row} may not see itself; every token must"
        )


def check_prompts(
    inputs: Tensor, scored_BT: Tensor | None, prompt_lengths_B: Tensor | None
) -> None:
    """Raise ValueError for prompt lengths that do not fit, or a scored position in a prompt."""
    batch, length = inputs.shape[:2]
    if not isinstance(prompt_lengths_B, Tensor) or prompt_lengths_B.shape != (batch,):
        raise ValueError(
            f"a prefix decoder needs prompt_lengths of shape ({batch},), how many tokens each "
            "prompt has"
        )
    if not can_look(inputs):
        return
    low, high = (
        prompt_lengths_B.aminmax() if prompt_lengths_B.dtype in INTEGERS else (0, 0)
    )
    if not 1 <= low <= high <= length:
        raise ValueError(
            f"prompt_lengths must be whole numbers from 1 to the {length} tokens of a row"
        )
    if (
        scored_BT is not None
        and (scored_BT & ~after_prompts(inputs, prompt_lengths_B)).any()
    ):
        raise ValueError(
            "a scored position lies inside the prompt, where a prefix decoder sees its answer"
        )


def check_tensor(
    name: str, value: object, kinds: tuple, shape: tuple, wanted: str
) -> None:
    """Raise ValueError unless ``value`` is a tensor of a given dtype and shape (None: any size)."""
    sizes = ", ".join(
        "BT"[i] if size is None else str(size) for i, size in enumerate(shape)
    )
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{name} is a {type(value).__name__}: must be a tensor, {wanted} of shape ({sizes})"
        )
    fits = value.dim() == len(shape) and all(
        size in (None, found) for size, found in zip(shape, value.shape, strict=True)
    )
    if not fits or value.dtype not in kinds:
        raise ValueError(
            f"{name} of shape {tuple(value.shape)} and type {value.dtype}: must be {wanted} "
            f"of shape ({sizes})"
        )


def check_ids(name: str, ids: Tensor, size: int | None) -> None:
    """Raise ValueError for ids below 0, or not below ``size``."""
    if not can_look(ids):
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or (size is not None and high >= size):
        wanted = "0 or more" if size is None else f"from 0 to {size - 1}"
        raise ValueError(f"{name} {low if low < 0 else high}: must be {wanted}")


def after_prompts(inputs: Tensor, prompt_lengths_B: Tensor) -> Tensor:
    """Return a boolean (B, T): positions from each prompt's last token on."""
    place_T = torch.arange(inputs.shape[1], device=inputs.device)
    return place_T >= prompt_lengths_B[:, None] - 1


def can_look(x: Tensor) -> bool:
    """Tell whether values may be read: not while compiling, nor on a GPU, which would stall."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def widest(device: str | torch.device) -> torch.dtype:
    """Return the widest real type of ``device``: float64, or float32 on a Mac's GPU."""
    return torch.float32 if torch.device(device).type in NARROW else torch.float64
