"""Count3's algorithms, programs and constructed weights, tried on many sequences (§6, appendices A.7, E and F)."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.models.decoding import generate
from entp_lib.models.transformer import build_model, parameter_count
from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.counting import count3_pairs, next_symbols
from entp_lib.validation import require
from entp_papers.entp.rasp import programs
from entp_papers.entp.rasp.constructed import (
    PLACE,
    ConstructedCount3,
    LayerTrace,
    constructed_count3,
    hard_cases,
    in_precision,
    largest_weight,
    run_by_layer,
    wrong_answers,
)
from entp_papers.entp.rasp.constructed_decoder import (
    count3_decoder,
    hard_sequences,
    longest_held,
    smallest_decoder,
)

LATE = 12  # longest prefixes of a hard sequence, where its numbers are largest
PRECISIONS = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}


def programs_study(sequences: int, longest: int, largest: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, list]]:
    """How often each program is right on random sequences of 1 to ``longest`` values up to ``largest``.

    Metrics: shares of right answers, by program; ``chain_steps``, whether Algorithm 6 always took 2n + 2; and for how
    many pairs (a, b) the two-layer a mod b of A.7 is wrong, by M and ε.
    """
    require(sequences >= 1 and longest >= 2, f"sequences = {sequences}, longest = {longest}: must be 1, 2 or more")
    generator = np.random.default_rng(seed)
    right: dict[str, list[bool]] = {}
    lowest = 0

    def note(name: str, *answers: bool) -> None:
        right.setdefault(name, []).extend(map(bool, answers))

    for _ in range(sequences):
        n = int(generator.integers(1, longest + 1))
        x = generator.integers(0, largest + 1, n).tolist()
        small = [value % n for value in x]
        answer = len(count3_pairs(x)) % n
        note("algorithm 2", programs.count3_quadratic(x) == answer)
        note("algorithm 3", programs.count3_table(x) == answer)
        note("algorithm 4, x mod n first", *(programs.count3_encoder(x) == answer))
        note("algorithm 4, x < n", *(programs.count3_encoder(small, reduce=False) == len(count3_pairs(small)) % n))
        if max(x) >= n:
            note("algorithm 4, some x ≥ n", programs._count3_encoder_as_printed(np.array(x))[-1] == answer)
        labels = np.array(programs.match3_bruteforce(x))
        printed = programs.match3_decoder(x, causal=False)
        note("algorithm 5, last position", printed[-1] == labels[-1])
        note("algorithm 5, every prefix", (printed == labels).all())
        note("algorithm 5 with all calls causal, every prefix", (programs.match3_decoder(x) == labels).all())
        tokens, chained = programs.generate_chain_of_thought(x)
        note("algorithm 6", chained == answer)
        note("algorithm 6 in 2n + 2 steps", len(tokens) == 2 * n + 2)
        lowest = min(lowest, count_of(small) - n * (n - 1))
    metrics: dict[str, Any] = {"right": {name: sum(values) / len(values) for name, values in right.items()}}
    metrics["tried"] = {name: len(values) for name, values in right.items()}
    metrics["smallest_value"] = lowest  # of algorithm 4, beside A.7's "0 to n²"
    for epsilon in (0.5, 0.1):
        for name, most in (("2n", 2 * longest), ("n/ε", longest / epsilon)):
            wrong = mod_errors(longest, most, epsilon)
            metrics.setdefault("mod_wrong", {})[f"M = {name}, ε = {epsilon}"] = wrong
    return metrics, {}


def count_of(x: Sequence[int]) -> int:
    """The count before it is taken mod n."""
    return len(count3_pairs(x))


def relu_mod(a: np.ndarray, b: np.ndarray, most: float, epsilon: float) -> np.ndarray:
    """A.7's a mod b for 0 <= a < 2b by two ReLU layers: relu(a - M relu(a - b + ε)) + relu(a - b)."""
    return np.maximum(a - most * np.maximum(a - b + epsilon, 0), 0) + np.maximum(a - b, 0)


def mod_errors(longest: int, most: float, epsilon: float) -> int:
    """For how many integers 1 <= b <= ``longest`` and a < 2b ``relu_mod`` is wrong by more than rounding.

    At a = b the first layer must take all of a away, M ε >= b: M >= n/ε is enough, and M >= 2n is not for ε < 1/2.
    """
    a, b = np.meshgrid(np.arange(2 * longest), np.arange(1, longest + 1))
    covered = a < 2 * b
    return int((np.abs(relu_mod(a, b, most, epsilon) - a % b)[covered] > 1e-9).sum())


def constructed_study(
    length: int,
    max_value: int,
    pairs: int,
    generations: int,
    seed_length: int,
    lengths: Sequence[int],
    pairs_each: int,
    shown: Sequence[int],
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, list]]:
    """The constructed Transformer at one length in full, then by length and precision.

    Metrics: the model's shape; wrong answers on random and on hard (sequence, prefix) pairs, and the smallest margin;
    wrongly continued sequences of ``generations`` from ``seed_length`` symbols; wrong answers under a causal mask; the
    named numbers of every layer on the sequence ``shown``, with and without the mask. Curves: one row per length and
    precision, wrong answers among ``pairs_each`` random pairs and at the last ``LATE`` prefixes of the hard sequences.
    """
    generator = generator_for("cpu", "constructed", seed)
    model = constructed_count3(length, max_value)
    name, size = largest_weight(model)
    random = random_pairs(length, max_value, pairs, generator)
    wrong, asked, margin = wrong_answers(model, *random)
    hard = hard_cases(length, max_value)
    hard_wrong, hard_asked, hard_margin = wrong_answers(model, hard, torch.ones_like(hard, dtype=torch.bool))
    causal = constructed_count3(length, max_value, "decoder")
    causal_wrong, causal_asked, _ = wrong_answers(causal, *(x[:64] for x in random))
    metrics = {
        "layers": model.cfg.n_layers,
        "heads": model.cfg.n_heads,
        "width": model.cfg.width,
        "largest_weight": size,
        "largest_weight_in": name,
        "random": {"wrong": wrong, "asked": asked, "margin": margin},
        "hard": {"wrong": hard_wrong, "asked": hard_asked, "margin": hard_margin},
        "causal": {"wrong": causal_wrong, "asked": causal_asked},
        "generated": {"sequences": generations, "wrong": wrong_generations(model, generations, seed_length, generator)},
        "trace": traces(model, causal, shown),
    }
    curves: dict[str, list] = {k: [] for k in ("length", "precision", "layers", "largest_weight", "asked", "wrong")}
    curves |= {"hard_asked": [], "hard_wrong": []}
    for n in lengths:
        model = constructed_count3(n, n - 1)
        random = random_pairs(n, n - 1, pairs_each, generator)
        cases = hard_cases(n, n - 1)
        chosen = torch.zeros_like(cases, dtype=torch.bool)
        chosen[:, -LATE:] = True
        for precision, dtype in PRECISIONS.items():
            twin = in_precision(model, dtype)
            wrong, asked, _ = wrong_answers(twin, *random)
            hard_wrong, hard_asked, _ = wrong_answers(twin, cases, chosen)
            row = (n, precision, twin.cfg.n_layers, largest_weight(model)[1], asked, wrong, hard_asked, hard_wrong)
            for values, value in zip(curves.values(), row, strict=True):
                values.append(value)
    return metrics, curves


def below_length_study(
    lengths: Sequence[int], pairs_each: int, seed: int = 0
) -> tuple[dict[str, Any], dict[str, list]]:
    """The constructed Transformer without the layers that take values mod n, on prefixes with values below their n.

    Lemma 6.3 as it is stated: its footnote has values below the length. Curves: by longest length, the layers, heads
    and width, and how many of ``pairs_each`` random prefixes were answered wrongly; the first has that length.
    """
    curves: dict[str, list] = {name: [] for name in ("length", "layers", "heads", "width", "asked", "wrong")}
    for longest in lengths:
        model = constructed_count3(longest, longest - 1, reduce=False)
        generator = generator_for("cpu", "below length", longest, seed)
        wrong = 0
        for i in range(pairs_each):
            n = longest if i == 0 else int(torch.randint(1, longest + 1, (1,), generator=generator))
            tokens_1T = torch.randint(n, (1, n), generator=generator)
            wanted_1T = torch.arange(n)[None] == n - 1
            wrong += wrong_answers(model, tokens_1T, wanted_1T)[0]
        cfg = model.cfg
        row = (longest, cfg.n_layers, cfg.n_heads, cfg.width, pairs_each, wrong)
        for values, value in zip(curves.values(), row, strict=True):
            values.append(value)
    return {}, curves


def constructed_decoder_study(
    lengths: Sequence[int], shaped: Mapping[str, int], sequences: int, seed: int = 0
) -> tuple[dict[str, Any], dict[str, list]]:
    """The constructed decoder at every prefix: of the least size for ``lengths``, with as many symbols, and of others.

    ``shaped``: a length for each of the paper's sizes that is to be filled. Metrics: shape and parameters of Small,
    Medium and Large, and the longest length they have room for. Curves: one row per model and precision: wrong answers
    on ``sequences`` random and as many sequences of the task itself, and on the hard ones, and the smallest margin.
    """
    models = {f"least, length {n}": smallest_decoder(n, n) for n in lengths}
    for size, n in shaped.items():
        models[size] = ModelConfig.from_size(size, architecture="decoder", vocab_size=n, max_length=n)
    shape = ("layers", "heads", "width", "parameters")
    names = ("model", "length", *shape, "precision", "asked", "wrong", "hard_asked", "hard_wrong", "margin")
    curves: dict[str, list] = {name: [] for name in names}
    for label, cfg in models.items():
        n, model = cfg.max_length, count3_decoder(cfg)
        generator = generator_for("cpu", "constructed decoder", n, seed)
        own = Counting(length=n, seed_length=max(1, n // 4), symbols=n).sequences(generator, sequences)[:, :n]
        sets = torch.cat([torch.randint(n, own.shape, generator=generator), own]), hard_sequences(n, n)
        for precision, dtype in PRECISIONS.items():
            twin = copy.deepcopy(model).to(dtype)
            found = [wrong_answers(twin, x, torch.ones_like(x, dtype=torch.bool)) for x in sets]
            (wrong, asked, margin), (hard_wrong, hard_asked, hard_margin) = found
            tried = (precision, asked, wrong, hard_asked, hard_wrong, min(margin, hard_margin))
            for values, value in zip(curves.values(), (label, n, *shape_of(cfg), *tried), strict=True):
                values.append(value)
    paper = {}
    for size in ("small", "medium", "large"):
        held = longest_held(size)
        cfg = ModelConfig.from_size(size, architecture="decoder", vocab_size=held, max_length=held)
        paper[size] = dict(zip(shape, shape_of(cfg), strict=True), longest=held)
    return {"paper": paper}, curves


def shape_of(cfg: ModelConfig) -> tuple[int, int, int, int]:
    """Layers, heads, width, and parameters without embeddings."""
    return cfg.n_layers, cfg.n_heads, cfg.width, parameter_count(build_model(cfg, device="meta"))


def counters_study(lengths: Sequence[int], largest: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, list]]:
    """Count3 in blocks of √n counters, against Conjecture 6.1: counters and steps by length, and whether it was right.

    Metrics: ``seeds``, the number of Count3's seeds at the paper's length and vocabulary, 64^16.
    """
    generator = np.random.default_rng(seed)
    curves: dict[str, list] = {name: [] for name in ("length", "counters", "steps", "right")}
    for n in lengths:
        x = generator.integers(0, largest + 1, n).tolist()
        answer, steps = programs.count3_blocks(x, math.isqrt(n))
        for name, value in zip(curves, (n, math.isqrt(n), steps, answer == programs.count3_table(x)), strict=True):
            curves[name].append(value)
    return {"seeds": float(64**16)}, curves


def random_pairs(length: int, max_value: int, pairs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random sequences (B, length) and exactly ``pairs`` wanted prefixes among them, at most 32 to a sequence."""
    rows = -(-pairs // min(32, length))
    tokens_BT = torch.randint(max_value + 1, (rows, length), generator=generator)
    return tokens_BT, some_of(tokens_BT, pairs, generator)


def some_of(tokens_BT: Tensor, pairs: int, generator: torch.Generator) -> Tensor:
    """Wanted prefixes, boolean (B, T): ``pairs`` of them at random, or all where there are no more."""
    chosen = torch.randperm(tokens_BT.numel(), generator=generator)[:pairs]
    wanted = torch.zeros(tokens_BT.numel(), dtype=torch.bool)
    wanted[chosen] = True
    return wanted.view_as(tokens_BT)


def wrong_generations(model: ConstructedCount3, sequences: int, seed_length: int, generator: torch.Generator) -> int:
    """How many random seeds the model does not continue as Count3 does, token by token to its full length."""
    length = model.cfg.max_length
    prompt_BT = torch.randint(model.cfg.vocab_size, (sequences, seed_length), generator=generator)
    text_BT = generate(model, prompt_BT, length - seed_length)
    right_B = torch.ones(sequences, dtype=torch.bool)
    for n in range(seed_length, length):
        right_B &= next_symbols(text_BT[:, :n], order=3) == text_BT[:, n]
    return int((~right_B).sum())


TRACED: dict[str, Callable[[Tensor], Tensor]] = {
    "n - 1": lambda state: state.column("last"),
    "a = x mod n": lambda state: state.column("a"),
    "a_n": lambda state: state.column("a_n"),
    "z": lambda state: state.column("z"),
    "y": lambda state: state.column("y") + state.column("y_first"),
    "w": lambda state: state.column("w"),
    "n · mean": lambda state: state.column("mean") / state.column("inverse"),
    "answer": lambda state: state.column("answer"),
}


def traces(model: ConstructedCount3, causal: ConstructedCount3, shown: Sequence[int]) -> dict[str, Any]:
    """Layer by layer on one sequence: the numbers at the end by name, and how many tokens' states a mask spoils.

    ``spoiled``: by layer, how many tokens have another state under the causal mask; ``spoiled_last``: whether the
    last token, which alone sees everything, is among them.
    """
    tokens_T = torch.tensor(shown)
    full, masked = run_by_layer(model, tokens_T), run_by_layer(causal, tokens_T)
    differ = [((a.state_TD - b.state_TD).abs().amax(1) > 1e-6) for a, b in zip(full, masked, strict=True)]
    return {
        "tokens": list(shown),
        "answer": int(next_symbols(tokens_T[None], order=3)),
        "says": model.says,
        "spoiled": [int(d.sum()) for d in differ],
        "spoiled_last": [bool(d[-1]) for d in differ],
        "numbers": {name: read(before_output(full)).tolist() for name, read in TRACED.items()},
        "numbers_masked": {name: read(before_output(masked)).tolist() for name, read in TRACED.items()},
        "attention": [[head.tolist() for head in layer.attention_HTT] for layer in full],
    }


def before_output(layers: Sequence[LayerTrace]) -> LayerTrace:
    """The states before the last layer overwrites a and x² by the output, with the answer that it finds."""
    state_TD = layers[-2].state_TD.clone()
    state_TD[:, PLACE["answer"]] = layers[-1].column("answer")
    return replace(layers[-2], state_TD=state_TD)
