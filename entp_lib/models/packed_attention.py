"""Attention among packed prefixes in three ways, the same function, and which of them is fastest here.

``masked``: one call over whole rows under a block mask, on any device. ``flex``: FlexAttention, which leaves out blocks
that the mask hides. ``variable``: variable-length attention over the segments, half precision on a GPU only. The first
is used unless ``use`` names another; the others only where nothing but the segments says who sees whom.

Letters: R rows, C tokens of a row, H heads, K head width.
"""

import functools
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from entp_lib.validation import one_of

WAYS = ("masked", "flex", "variable")
VARIABLE = "ENTP_PACKED_ATTENTION"  # so that processes which are started later do the same
SHAPES = {"small": (3, 192, 64), "medium": (6, 384, 64), "medium, 256 tokens": (6, 384, 256)}  # heads, width, tokens


def use(way: str) -> None:
    """Have packed rows attend in one of ``WAYS``, in this process and in those it starts. ConfigError for another."""
    one_of("packed attention", way, WAYS)
    os.environ[VARIABLE] = way


def in_use() -> str:
    """The way that packed rows attend in. ConfigError where the environment names another than ``WAYS``."""
    way = os.environ.get(VARIABLE) or "masked"
    one_of(VARIABLE, way, WAYS)
    return way


def attend(q_RHCK: Tensor, k_RHCK: Tensor, v_RHCK: Tensor, segment_RC: Tensor, way: str = "") -> Tensor:
    """Attention output (R, H, C, K) where every token sees its own segment of its row. ConfigError for another way."""
    way = way or in_use()
    one_of("packed attention", way, WAYS)
    if way != "masked":
        return {"flex": flexible, "variable": variable}[way](q_RHCK, k_RHCK, v_RHCK, segment_RC)
    same_R1CC = (segment_RC[:, :, None] == segment_RC[:, None])[:, None]
    return F.scaled_dot_product_attention(q_RHCK, k_RHCK, v_RHCK, attn_mask=same_R1CC)


@functools.cache
def compiled_flex() -> Callable:
    return torch.compile(flex_attention)


def flexible(q: Tensor, k: Tensor, v: Tensor, segment_RC: Tensor) -> Tensor:
    """By FlexAttention; compiled on a GPU, for uncompiled it holds all scores."""
    rows, tokens = segment_RC.shape
    call = compiled_flex() if q.device.type == "cuda" else flex_attention
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        mask = create_block_mask(
            lambda r, h, i, j: segment_RC[r, i] == segment_RC[r, j], rows, None, tokens, tokens, q.device.type
        )
        return call(q, k, v, block_mask=mask)


def variable(q: Tensor, k: Tensor, v: Tensor, segment_RC: Tensor) -> Tensor:
    """By variable-length attention; on a CPU segment by segment, which is slow and right."""
    rows, tokens = segment_RC.shape
    flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]  # (M, H, K)
    new_RC = torch.ones_like(segment_RC, dtype=torch.bool)
    new_RC[:, 1:] = segment_RC[:, 1:] != segment_RC[:, :-1]
    starts = F.pad(new_RC.flatten().nonzero()[:, 0], (0, 1), value=segment_RC.numel()).int()  # and one past the last
    if q.device.type == "cuda":
        from torch.nn.attention.varlen import varlen_attn

        out = varlen_attn(*flat, starts, starts, tokens, tokens)
    else:
        pieces = zip(*(x.transpose(0, 1)[None].split(starts.diff().tolist(), 2) for x in flat), strict=True)
        out = torch.cat([F.scaled_dot_product_attention(*piece)[0].transpose(0, 1) for piece in pieces])
    return out.unflatten(0, (rows, tokens)).transpose(1, 2)


def choice_study(device: str, dtype: str, rows: int, repeat: int) -> tuple[dict[str, Any], dict[str, list]]:
    """Seconds of a forward and backward pass in every way, by shape, and the ``choice``: the fastest of all together.

    ``dtype``: bf16 or fp32. A way that this machine does not have, or whose output is not that of ``masked`` within
    2 % of its largest entry (bf16) or 1e-4 (fp32), is not chosen; ``left_out`` says why.
    """
    one_of("dtype", dtype, ("bf16", "fp32"))
    found: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    why: dict[str, str] = {}
    for name, (heads, width, tokens) in SHAPES.items():
        generator = torch.Generator().manual_seed(0)
        kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        shape = (3, rows, heads, tokens, width // heads)
        q, k, v = (torch.randn(shape, generator=generator).to(device, kind).requires_grad_(True)).unbind(0)
        cuts = torch.randint(1, tokens, (rows, 1), generator=generator)
        segment_RC = (torch.arange(tokens) >= cuts).long().to(device)
        with torch.no_grad():
            right = attend(q, k, v, segment_RC, "masked").float()
        for way in (way for way in WAYS if way not in why):
            try:
                with torch.no_grad():
                    off = (attend(q, k, v, segment_RC, way).float() - right).abs().max() / right.abs().max()
                if not off <= (0.02 if dtype == "bf16" else 1e-4):
                    raise ArithmeticError(f"off by {float(off):.2g}")
                found[way][name] = seconds(functools.partial(attend, q, k, v, segment_RC, way), device, repeat)
            except Exception as error:  # whatever a kernel that is not for this machine raises: it is not chosen
                why[way] = f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    whole = {way: sum(times.values()) for way, times in found.items() if way not in why}
    choice = min(whole, key=whole.get)
    return {"choice": choice, "seconds": found, "left_out": why}, {}


def seconds(run: Callable[[], Tensor], device: str, repeat: int) -> float:
    """Median seconds of a forward and backward pass, after one that is not counted."""
    times = []
    for _ in range(repeat + 1):
        began = time.perf_counter()
        run().square().sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])
