"""What ``Transformer.forward`` is given: checked, so that a mistake is named before anything is computed.

Letters: B batch, T tokens.
"""

import torch
from torch import Tensor

from entp_lib.config import ModelConfig


def check_inputs(cfg: ModelConfig, inputs: Tensor, wanted_BT: Tensor | None, prompt_lengths_B: Tensor | None) -> None:
    """Raise ValueError, naming the value, where inputs, wanted positions or prompts do not fit the model of ``cfg``."""
    expected = 2 if cfg.input_dim is None else 3
    want = "(B, T) token ids" if expected == 2 else f"(B, T, {cfg.input_dim})"
    check_tensor("inputs", inputs, want, "torch.tensor([[3, 1, 2]])" if expected == 2 else "torch.randn(2, 5, 3)")
    if inputs.dim() != expected or (expected == 3 and inputs.shape[2] != cfg.input_dim):
        raise ValueError(f"inputs of shape {tuple(inputs.shape)}: this model takes {want}")
    if expected == 2 and inputs.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"inputs of type {inputs.dtype}: token ids must be torch.int64 (inputs.long())")
    if expected == 3 and not inputs.is_floating_point():
        raise ValueError(f"inputs of type {inputs.dtype}: this model's inputs are real numbers (inputs.float())")
    if inputs.shape[0] == 0 or inputs.shape[1] == 0:
        raise ValueError(f"inputs of shape {tuple(inputs.shape)}: the batch is empty")
    if wanted_BT is not None:
        check_tensor("wanted", wanted_BT, "a boolean mask (B, T)", "torch.ones(2, 5, dtype=torch.bool)")
        if wanted_BT.dtype != torch.bool or wanted_BT.shape != inputs.shape[:2]:
            raise ValueError(
                f"wanted has shape {tuple(wanted_BT.shape)} and type {wanted_BT.dtype}: "
                f"must be boolean of shape {tuple(inputs.shape[:2])}"
            )
    if inputs.shape[1] > cfg.max_length:
        raise ValueError(f"{inputs.shape[1]} tokens: beyond the model's max_length of {cfg.max_length}")
    if expected == 2 and can_look(inputs):
        low, high = int(inputs.min()), int(inputs.max())
        if low < 0 or high >= cfg.vocab_size:
            bad = low if low < 0 else high
            raise ValueError(f"token id {bad}: outside the vocabulary of {cfg.vocab_size}")
    if cfg.open_prompt:
        check_prompt(inputs, wanted_BT, prompt_lengths_B)


def check_relations(
    cfg: ModelConfig, table: int | None, inputs: Tensor, positions_BT: Tensor | None, mask_BTT: Tensor | None
) -> None:
    """Raise ValueError where position ids or a mask by row do not fit; entries are looked at on a CPU only.

    ``table``: how many positions the model's scheme has vectors for, None for any number.
    """
    batch, length = inputs.shape[:2]
    if positions_BT is not None:
        check_tensor("positions", positions_BT, "whole numbers (B, T)", "torch.arange(5).expand(2, -1)")
        if positions_BT.shape != (batch, length) or positions_BT.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"positions of shape {tuple(positions_BT.shape)} and type {positions_BT.dtype}: must be whole "
                f"numbers, torch.int64, of shape ({batch}, {length})"
            )
        if can_look(positions_BT):
            low, high = int(positions_BT.min()), int(positions_BT.max())
            if low < 0 or (table is not None and high >= table):
                bad, last = (low if low < 0 else high), "" if table is None else f" to {table - 1}"
                raise ValueError(f"position id {bad}: {cfg.positions} positions are 0{last or ' or more'}")
    if mask_BTT is not None:
        check_tensor("mask", mask_BTT, "boolean (B, T, T)", "torch.ones(2, 5, 5, dtype=torch.bool)")
        if mask_BTT.dtype != torch.bool or mask_BTT.shape != (batch, length, length):
            raise ValueError(
                f"mask has shape {tuple(mask_BTT.shape)} and type {mask_BTT.dtype}: must be boolean of shape "
                f"({batch}, {length}, {length}), True where a token (row) may see another (column)"
            )
        check_own_place(mask_BTT)


def check_own_place(mask_BQS: Tensor) -> None:
    """Raise ValueError where one of the last Q of S tokens may not see itself; looked at on a CPU only."""
    own_BQ = mask_BQS.diagonal(offset=mask_BQS.shape[2] - mask_BQS.shape[1], dim1=1, dim2=2)
    if can_look(mask_BQS) and not own_BQ.all():
        row, place = (~own_BQ).nonzero()[0].tolist()
        raise ValueError(f"mask: token {place} of row {row} may not see itself; every token must")


def check_prompt(inputs: Tensor, wanted_BT: Tensor | None, prompt_lengths_B: Tensor | None) -> None:
    """Raise ValueError where a prefix decoder has no prompt lengths, or is asked inside a prompt."""
    batch, length = inputs.shape[:2]
    if not isinstance(prompt_lengths_B, Tensor) or prompt_lengths_B.shape != (batch,):
        raise ValueError(f"a prefix decoder needs prompt_lengths of shape ({batch},), how many tokens each prompt has")
    if can_look(inputs):
        whole = not prompt_lengths_B.is_floating_point() and prompt_lengths_B.dtype != torch.bool
        if not whole or (batch and not 1 <= int(prompt_lengths_B.min()) <= int(prompt_lengths_B.max()) <= length):
            raise ValueError(f"prompt_lengths must be whole numbers from 1 to the {length} tokens of a row")
    places_T = torch.arange(length, device=inputs.device)
    inside = (
        wanted_BT is not None and can_look(inputs) and (wanted_BT & (places_T < prompt_lengths_B[:, None] - 1)).any()
    )
    if inside:
        raise ValueError("a wanted position lies inside the prompt, where a prefix decoder sees its answer")


def check_tensor(name: str, value: object, want: str, example: str) -> None:
    """Raise ValueError where an argument is no tensor at all."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}: must be a tensor, {want}, such as {example}")


def can_look(x: Tensor) -> bool:
    """Whether entries of a tensor may decide: not in compilation, nor on a GPU, whose queue would stall."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def has_shapes_alone(x: Tensor) -> bool:
    """Whether there are no entries to plan by: in compilation and export, and on the meta device."""
    return x.device.type == "meta" or torch.compiler.is_compiling()


def after_prompts(inputs: Tensor, prompt_lengths_B: Tensor | None) -> Tensor | None:
    """Boolean (B, T): positions from each prompt's last token on; None where the arguments will not do."""
    if not (isinstance(inputs, Tensor) and isinstance(prompt_lengths_B, Tensor) and inputs.dim() > 1):
        return None
    return torch.arange(inputs.shape[1], device=inputs.device) >= prompt_lengths_B.view(-1, 1) - 1
