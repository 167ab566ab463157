"""Measured costs of next tokens: seconds, live tensors and counted operations by length (§5, Table
1, appendix D).

Per token: an encoder runs its stack over the whole prefix, a decoder over one position with its
cache. Per sequence, all next tokens at once: ENTP by the definition's loop and by
``entp_lib.entp.fast``, a decoder in one pass. Memory is counted from tensors, not read from the
process: ``persistent`` is what a cache holds between tokens, ``transient`` the peak of all other
live tensors while a token is computed, without parameters.
"""

import math
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from entp_lab.studies import Study, at_least, gaussians, largest, seeded
from entp_lib.config import ModelConfig
from entp_lib.costs import counted
from entp_lib.decoding import Cache, cached_logits
from entp_lib.model import build_model, causal_pass

Call = Callable[[], Any]  # what is measured
VOCABULARY = 64
SHORTEST = 0.01  # seconds that one timing lasts at least; shorter calls are repeated
STREAMED = 1024  # Algorithm 1 is a Python loop over keys: checked up to this length


class LiveTensors(TorchDispatchMode):
    """Count the bytes of live tensors made inside the context: ``live`` now, ``peak`` at most.

    Buffers inside a kernel are not tensors and are not counted.
    """

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self.known = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for tensor in tensors_in((args, kwargs)):
            self.known.setdefault(tensor.untyped_storage(), True)  # made outside, or counted before
        out = func(*args, **(kwargs or {}))
        for tensor in tensors_in(out):
            storage = tensor.untyped_storage()
            if storage not in self.known:
                self.known[storage] = True
                self.add(storage.nbytes())
                weakref.finalize(storage, self.add, -storage.nbytes())
        return out

    def add(self, size: int) -> None:
        self.live += size
        self.peak = max(self.peak, self.live)


def tensors_in(tree) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def peak_bytes(call: Call) -> int:
    """Return the peak bytes of live tensors that ``call`` made."""
    with LiveTensors() as tensors:
        call()
    return tensors.peak


class Subjects:
    """The measured computations of one shape; each method returns a call for a length.

    On the device "meta" operations can only be counted, not timed.
    """

    def __init__(self, cfg: ModelConfig, device: str = "cpu"):
        self.decoder = build_model(replace(cfg, architecture="decoder"), device=device).eval()
        self.encoder = build_model(replace(cfg, architecture="entp"), device=device).eval()
        generator = seeded(0)
        self.tokens_T = torch.randint(VOCABULARY, (cfg.max_length,), generator=generator).to(device)

    def encoder_token(self, n: int) -> Call:
        """Return a call for the next token after n, by definition: the unmasked stack over all."""
        model = self.encoder
        tokens_BT = self.tokens_T[None, :n]

        def call() -> Tensor:
            x = model.embed(tokens_BT)
            for block in model.blocks:
                x = block(x)
            return model.head(model.ln_f(x[:, -1]))

        return call

    def decoder_token(self, n: int) -> Call:
        """Return a call for the next token after n, with n - 1 in the cache.

        The values in the cache do not matter here.
        """
        cache = Cache(self.decoder, 1, n)
        last = self.tokens_T[None, n - 1 : n]

        def call() -> Tensor:
            cache.length = n - 1
            return cached_logits(self.decoder, last, cache)

        return call

    def decoder_pass(self, n: int) -> Call:
        """Return a call for all n next tokens of a decoder, in one masked pass."""
        model = self.decoder
        tokens_BT = self.tokens_T[None, :n]
        return lambda: model.head(model.ln_f(causal_pass(model.layers, model.embed(tokens_BT))))

    def entp(self, n: int, method: str) -> Call:
        """Return a call for all n next tokens of ENTP, by "reference" (the loop) or "fast"."""
        model = self.encoder
        tokens_BT = self.tokens_T[None, :n]
        everything = torch.ones_like(tokens_BT, dtype=torch.bool)

        def call() -> Tensor:
            model.entp_method = method
            return model(tokens_BT, everything)

        return call


@torch.no_grad()
def measure(
    n_layers: int,
    n_heads: int,
    width: int,
    lengths: Sequence[int],
    sequence_lengths: Sequence[int],
    rounds: int,
    sequence_rounds: int,
) -> Study:
    """Measure the costs of one shape per token (at ``lengths``) and per sequence.

    Return (metrics, curves). Times are the lowest (s) of ``rounds``, each of which goes through all
    lengths and methods in turn. Memory is in bytes; ``_dense`` is that with the matrix of attention
    scores formed. Operations are multiply-adds. ConfigError for no lengths, lengths below 2, or
    rounds below 1.
    """
    at_least(2, lengths=min(lengths, default=0), sequence_lengths=min(sequence_lengths, default=0))
    at_least(1, rounds=rounds, sequence_rounds=sequence_rounds)
    longest = max(*lengths, *sequence_lengths)
    cfg = ModelConfig("entp", n_layers, n_heads, width, VOCABULARY, longest)
    subjects = Subjects(cfg)
    shapes = Subjects(cfg, device="meta")
    token = {"encoder": subjects.encoder_token, "decoder": subjects.decoder_token}
    sequence = {
        "fast": lambda n: subjects.entp(n, "fast"),
        "loop": lambda n: subjects.entp(n, "reference"),
        "decoder_pass": subjects.decoder_pass,
    }
    curves = {"length": list(lengths), "sequence_length": list(sequence_lengths)}
    timed = timings(token, lengths, rounds) | timings(sequence, sequence_lengths, sequence_rounds)
    curves |= {f"{name}_seconds": values for name, values in timed.items()}
    for measured, at in ((token, lengths), (sequence, sequence_lengths)):
        curves |= {
            f"{name}_transient": [peak_bytes(make(n)) for n in at]
            for name, make in measured.items()
        }
    with sdpa_kernel(SDPBackend.MATH):
        curves["encoder_transient_dense"] = [peak_bytes(subjects.encoder_token(n)) for n in lengths]
    curves["decoder_persistent"] = [
        Cache(subjects.decoder, 1, n).kv.untyped_storage().nbytes() for n in lengths
    ]
    for name, make, at in (
        ("encoder", shapes.encoder_token, lengths),
        ("decoder", shapes.decoder_token, lengths),
        ("decoder_pass", shapes.decoder_pass, sequence_lengths),
    ):
        curves[f"{name}_operations"] = [counted(make(n)) for n in at]
    short = [n for n in lengths if n <= STREAMED] or [min(lengths)]
    errors, sizes = zip(*(streamed(n, width) for n in short), strict=True)
    curves |= {"streamed_length": short, "streamed_transient": list(sizes)}
    n = max(sequence_lengths)
    loop = subjects.entp(n, "reference")()
    fast = subjects.entp(n, "fast")()
    fast_error = largest(loop, fast) / largest(loop)
    return {"streamed_error": max(errors), "fast_error": fast_error}, curves


def timings(
    subjects: dict[str, Callable],
    lengths: Sequence[int],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return each subject's lowest seconds over rounds at each length, after one warm-up call.

    ``subjects`` map a length to a call. In a round a call is repeated until ``SHORTEST`` has
    passed, and its mean time is taken.
    """
    calls = {(name, n): make(n) for name, make in subjects.items() for n in lengths}
    best = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
    for _ in range(rounds):
        for key, call in calls.items():
            made = 0
            passed = 0.0
            begun = clock()
            while passed < SHORTEST:
                call()
                made += 1
                passed = clock() - begun
            best[key] = min(best[key], passed / made)
    return {name: [best[name, n] for n in lengths] for name in subjects}


def printed_attention(q_D: Tensor, k_nD: Tensor, v_nD: Tensor) -> Tensor:
    """Compute Algorithm 1 as printed: without the scale 1/√D, and with sums of exp(q·k).

    The sums overflow for large scores.
    """
    weighted = torch.zeros_like(v_nD[0])
    mass = q_D.new_zeros(())
    for k_D, v_D in zip(k_nD, v_nD, strict=True):
        weight = (q_D @ k_D).exp()
        weighted = weighted + weight * v_D
        mass = mass + weight
    return weighted / mass


def streaming_attention(q_D: Tensor, k_nD: Tensor, v_nD: Tensor) -> Tensor:
    """Compute softmax attention of one query over n keys in O(D) memory besides the inputs.

    This is Algorithm 1 (appendix D) with the running maximum subtracted from the scores, so that
    exp(q·k) does not overflow; the result is the same.
    """
    weighted = torch.zeros_like(v_nD[0])
    mass = q_D.new_zeros(())
    largest = q_D.new_full((), -torch.inf)
    for k_D, v_D in zip(k_nD, v_nD, strict=True):
        score = q_D @ k_D / len(q_D) ** 0.5
        new = torch.maximum(largest, score)
        shrink = (largest - new).exp()
        weight = (score - new).exp()
        weighted = shrink * weighted + weight * v_D
        mass = shrink * mass + weight
        largest = new
    return weighted / mass


def random_attention(n: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a random query (D,), n keys and values (n, D), and their softmax attention (D,), in
    fp64.
    """
    generator = seeded(0)
    q = gaussians(generator, width)
    k = gaussians(generator, n, width)
    v = gaussians(generator, n, width)
    return q, k, v, F.softmax(k @ q / width**0.5, 0) @ v


def printed_error() -> float:
    """Return the largest error of Algorithm 1 as printed, on small scores, its query over √D."""
    q, k, v, expected = random_attention(64, 16)
    return largest(printed_attention(q / 4, k, v), expected)


def streamed(n: int, width: int) -> tuple[float, int]:
    """Return the largest error of Algorithm 1 on n random keys, and its transient bytes."""
    q, k, v, expected = random_attention(n, width)
    return largest(streaming_attention(q, k, v), expected), peak_bytes(
        lambda: streaming_attention(q, k, v)
    )
