"""Checks of a new machine, in its first minute.

Each check says what it found, and whether that will do. The oracle is the definition in double precision on the CPU,
``entp_method = "reference"``.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.models import build_model
from entp_lib.models.decoding import generate
from entp_lib.tasks import generator_for
from entp_lib.training.evaluation import autocast
from entp_lib.training.loop import train

BOUNDS = {"fp32": 2e-4, "bf16": 6e-2}  # of the largest entry: a GPU's fp32 products may round as TF32 does not
SHAPE = dict(n_layers=3, n_heads=3, width=48, vocab_size=32, max_length=24)


def difference(mine: Tensor, theirs: Tensor) -> float:
    """The largest difference relative to the largest entry."""
    return float((mine.double().cpu() - theirs.double().cpu()).abs().max() / theirs.abs().max())


def outcome(model: nn.Module, tokens_BT: Tensor, wanted_BT: Tensor, prompts_B: Tensor, precision: str) -> list[Tensor]:
    """Logits and the whole gradient of a forward and backward pass."""
    model.zero_grad(set_to_none=True)
    device = tokens_BT.device
    with autocast(str(device), precision):
        logits_NV = model(tokens_BT, wanted_BT, prompts_B)
    logits_NV.float().square().mean().backward()
    return [logits_NV.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])]


def engine(device: str, precision: str) -> tuple[str, bool]:
    """Every architecture, and ENTP in each of its ways, against the definition: values and gradients."""
    tokens_BT = torch.randint(32, (6, 24), generator=generator_for("cpu", "check"))
    wanted_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
    wanted_BT[:, :5] = False
    prompts_B = torch.full((6,), 6)
    said, passed = [], True
    for name in ("decoder", "prefix_decoder", "entp"):
        cfg = ModelConfig(architecture=name, **SHAPE)
        exact = build_model(cfg, 1).double()
        with torch.no_grad():
            for p in exact.parameters():
                p.mul_(6) if p.dim() > 1 else None  # so that attention matters
        exact.entp_method = "reference" if name == "entp" else "fast"
        right = outcome(exact, tokens_BT, wanted_BT, prompts_B, "fp32")
        ways = ("grouped", "packed") if name == "entp" else ("fast",)
        for way in ways:
            model = build_model(cfg, 1).to(device)
            with torch.no_grad():
                for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
                    mine.copy_(theirs)
            model.entp_method = way
            moved = (tokens_BT.to(device), wanted_BT.to(device), prompts_B.to(device))
            off = max(map(difference, outcome(model, *moved, precision), right))
            passed &= off <= BOUNDS[precision]
            said.append(f"{name} {way} {off:.1e}" if name == "entp" else f"{name} {off:.1e}")
    return f"off by {', '.join(said)}, at most {BOUNDS[precision]:g}", passed


def decoding(device: str) -> tuple[str, bool]:
    """A decoder's cached generation against its generation without a cache: the same tokens."""
    model = build_model(ModelConfig(architecture="decoder", **SHAPE), 1).to(device).eval()
    prompt_BT = torch.randint(32, (4, 6), generator=generator_for("cpu", "check")).to(device)
    cached, plain = (generate(model, prompt_BT, 12, use_cache=flag) for flag in (True, False))
    return f"{int((cached != plain).sum())} of {cached.numel()} tokens differ", bool((cached == plain).all())


def memory(device: str) -> tuple[str, bool]:
    """Peak memory of a Medium ENTP step of batch 64 against what there is; on a CPU a small step."""
    cuda = device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    size, batch, length = ("medium", 64, 64) if cuda else ("extra_small", 4, 16)
    model = build_model(ModelConfig.from_size(size, architecture="entp", vocab_size=64, max_length=length), 0, device)
    tokens_BT = torch.randint(64, (batch, length), generator=generator_for("cpu", "check")).to(device)
    for part in model.plan(torch.ones_like(tokens_BT, dtype=torch.bool)):
        with autocast(device, "bf16" if cuda else "fp32"):
            loss = model(tokens_BT, part).float().square().mean()
        loss.backward()
    if not cuda:
        return f"a step of {size} ran", True
    free, total = torch.cuda.mem_get_info()
    peak = torch.cuda.max_memory_allocated()  # since the reset before the step
    return (
        f"{peak / 2**30:.1f} GiB at the peak of a step, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free",
        peak < total,
    )


def resume(device: str) -> tuple[str, bool]:
    """A run stopped behind a step and continued from its checkpoint against one that was not: the same curves."""
    model = ModelConfig("entp", 2, 2, 32, 8, 8)
    schedule = TrainConfig(steps=8, batch_size=8, warmup_steps=2, eval_every=4, eval_sequences=64)
    task = dict(length=8, seed_length=3, symbols=8)
    config = RunConfig("check", "smoke", "counting", task, model, replace(schedule, final_eval_sequences=64))
    whole = train(config, device=device)
    with tempfile.TemporaryDirectory() as folder:
        steps = iter([False] * 3 + [True])
        path = Path(folder) / "checkpoint.safetensors"
        cut = train(config, device=device, checkpoint=path, stop=lambda: next(steps))
        rest = train(config, device=device, checkpoint=path)
    curves = [{k: v for k, v in found.state.curves.items() if k != "seconds"} for found in (whole, rest)]
    same = curves[0] == curves[1]
    return f"stopped behind step {cut.state.step}, {'the same' if same else 'other'} curves", same and not cut.complete


CHECKS: dict[str, Callable[[str], tuple[str, bool]]] = {
    "engine fp32": lambda device: engine(device, "fp32"),
    "engine bf16": lambda device: engine(device, "bf16"),
    "decoding": decoding,
    "memory": memory,
    "resume": resume,
}
