"""Count3's algorithms, programs and constructed weights, tried on many sequences (§6, appendices
A.7, E and F).
"""

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from entp_lab.configs import Json
from entp_lab.studies import Study, at_least, columns, largest
from entp_lib.config import SIZES, ModelConfig
from entp_lib.decoding import generate
from entp_lib.model import Transformer, build_model, parameter_count
from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.counting import count3, count3_pairs, next_symbols
from entp_lib.tasks.triplets import triplet_label
from entp_papers.entp.pairless import grown
from entp_papers.entp.rasp import programs
from entp_papers.entp.rasp.constructed import (
    Answers,
    LayerTrace,
    before_output,
    constructed_count3,
    hard_cases,
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


def in_precisions(model: Transformer) -> dict[str, Transformer]:
    """Return the model computed in every precision, its weights rounded to it."""
    return {name: copy.deepcopy(model).to(dtype) for name, dtype in PRECISIONS.items()}


def programs_study(sequences: int, longest: int, largest: int) -> Study:
    """Measure programs' shares of right answers on random sequences.

    Sequences have 1 to ``longest`` values up to ``largest``. Metrics: these shares;
    ``smallest_value`` inside Algorithm 4; and for how many pairs (a, b)
    the two-layer a mod b of A.7 is wrong, by M and ε.
    """
    at_least(1, sequences=sequences)
    at_least(2, longest=longest)
    generator = np.random.default_rng(0)
    right = {}
    lowest = 0

    def note(name: str, *answers: bool) -> None:
        right.setdefault(name, []).extend(map(bool, answers))

    for _ in range(sequences):
        n = int(generator.integers(1, longest + 1))
        x = generator.integers(0, largest + 1, n).tolist()
        small = [value % n for value in x]
        answer = len(count3_pairs(x)) % n
        small_count = len(count3_pairs(small))
        note("algorithm 2", programs.count3_quadratic(x) == answer)
        note("algorithm 3", count3(x) == answer)
        note("algorithm 4, x mod n first", *(programs.count3_encoder(x) == answer))
        note(
            "algorithm 4, x < n", *(programs.count3_encoder(small, reduce=False) == small_count % n)
        )
        if max(x) >= n:
            note(
                "algorithm 4, some x ≥ n",
                programs._count3_encoder_as_printed(np.array(x))[-1] == answer,
            )
        labels = [
            triplet_label(x[:t], programs.MODULUS, "first", "exists") for t in range(1, n + 1)
        ]
        printed = programs.match3_decoder(x, causal=False)
        note("algorithm 5, last position", printed[-1] == labels[-1])
        note("algorithm 5, every prefix", (printed == labels).all())
        note(
            "algorithm 5 with all calls causal, every prefix",
            (programs.match3_decoder(x) == labels).all(),
        )
        tokens, chained = programs.generate_chain_of_thought(x)
        note("algorithm 6", chained == answer)
        note("algorithm 6 in 2n + 2 steps", len(tokens) == 2 * n + 2)
        lowest = min(lowest, small_count - n * (n - 1))
    wrong = {
        f"M = {name}, ε = {epsilon}": mod_errors(longest, most, epsilon)
        for epsilon in (0.5, 0.1)
        for name, most in (("2n", 2 * longest), ("n/ε", longest / epsilon))
    }
    shares = {name: sum(values) / len(values) for name, values in right.items()}
    tried = {name: len(values) for name, values in right.items()}
    return {"right": shares, "tried": tried, "smallest_value": lowest, "mod_wrong": wrong}, {}


def mod_errors(longest: int, most: float, epsilon: float) -> int:
    """Count for how many integers 1 <= b <= ``longest`` and a < 2b the a mod b of A.7 is wrong by
    more than rounding.

    Two ReLU layers: relu(a - M relu(a - b + ε)) + relu(a - b). At a = b the first must take all of
    a away, M ε >= b: M >= n/ε is enough, and M >= 2n is not for ε < 1/2.
    """
    a, b = np.meshgrid(np.arange(2 * longest), np.arange(1, longest + 1))
    found = np.maximum(a - most * np.maximum(a - b + epsilon, 0), 0) + np.maximum(a - b, 0)
    return int((np.abs(found - a % b)[a < 2 * b] > 1e-9).sum())


def constructed_study(
    length: int,
    max_value: int,
    pairs: int,
    generations: int,
    seed_length: int,
    lengths: Sequence[int],
    pairs_each: int,
    shown: Sequence[int],
) -> Study:
    """Try the constructed Transformer at one length in full, then by length and precision.

    Metrics: the model's shape; wrong answers on random and on hard (sequence, prefix) pairs, and
    the smallest margin; wrongly continued sequences of ``generations`` from ``seed_length``
    symbols; wrong answers under a causal mask; the named numbers of every layer on the sequence
    ``shown``, with and without the mask. Curves: one row per length and precision, wrong answers
    among ``pairs_each`` random pairs and at the last ``LATE`` prefixes of the hard sequences.
    """
    generator = generator_for("cpu", "constructed", 0)
    model, causal = (constructed_count3(length, max_value, kind) for kind in ("entp", "decoder"))
    random = random_pairs(length, max_value, pairs, generator)
    hard = hard_cases(length, max_value)
    spoiled = wrong_answers(causal, *(x[:64] for x in random))
    metrics = {
        **shape(model.cfg),
        **largest_weight(model),
        "random": wrong_answers(model, *random)._asdict(),
        "hard": wrong_answers(model, hard, torch.ones_like(hard, dtype=torch.bool))._asdict(),
        "causal": {"wrong": spoiled.wrong, "asked": spoiled.asked},
        "generated": {
            "sequences": generations,
            "wrong": wrong_generations(model, generations, seed_length, generator),
        },
        "trace": traces(model, causal, shown),
    }
    rows = []
    for n in lengths:
        model = constructed_count3(n, n - 1)
        random = random_pairs(n, n - 1, pairs_each, generator)
        hard = hard_cases(n, n - 1)
        late = (torch.arange(n) >= n - LATE).expand_as(hard)
        for precision, twin in in_precisions(model).items():
            rows.append(
                {
                    "length": n,
                    "precision": precision,
                    "layers": model.cfg.n_layers,
                    "largest_weight": largest_weight(model)["largest_weight"],
                    **both_scores(wrong_answers(twin, *random), wrong_answers(twin, hard, late)),
                }
            )
    return metrics, columns(rows)


def below_length_study(lengths: Sequence[int], pairs_each: int) -> Study:
    """Try the constructed Transformer without the layers that take values mod n, on prefixes with
    values below their n.

    This is Lemma 6.3 as stated: its footnote has values below the length. Curves: by longest
    length, the layers, heads and width, and how many of ``pairs_each`` random prefixes were
    answered wrongly; the first has that length.
    """
    rows = []
    for longest in lengths:
        model = constructed_count3(longest, longest - 1, reduce=False)
        generator = generator_for("cpu", "below length", longest, 0)
        wrong = 0
        for i in range(pairs_each):
            n = longest if i == 0 else int(torch.randint(1, longest + 1, (1,), generator=generator))
            tokens_1T = torch.randint(n, (1, n), generator=generator)
            wrong += wrong_answers(model, tokens_1T, torch.arange(n)[None] == n - 1)[0]
        rows.append({"length": longest, **shape(model.cfg), "asked": pairs_each, "wrong": wrong})
    return {}, columns(rows)


def constructed_decoder_study(lengths: Sequence[int], shaped: Json, sequences: int) -> Study:
    """Try the constructed decoder at every prefix, at its least size for ``lengths`` and at others.

    There are as many symbols as positions. ``shaped``: a length for each of the paper's sizes that
    are tried. Metrics: shape and
    parameters of Small, Medium and Large, and the longest length they have room for. Curves: one
    row per model and precision: wrong answers on ``sequences`` random and as many sequences of the
    task itself, and on the hard ones, and the smallest margin.
    """

    def of_size(size: str, n: int) -> ModelConfig:
        return ModelConfig("decoder", **SIZES[size], vocab_size=n, max_length=n)

    def sized(cfg: ModelConfig) -> Json:  # parameters without embeddings
        return shape(cfg) | {"parameters": parameter_count(build_model(cfg, device="meta"))}

    models = {f"least, length {n}": smallest_decoder(n, n) for n in lengths}
    rows = []
    for label, cfg in (models | {size: of_size(size, n) for size, n in shaped.items()}).items():
        n = cfg.max_length
        generator = generator_for("cpu", "constructed decoder", n, 0)
        own = Counting(length=n, seed_length=max(1, n // 4), symbols=n).sequences(
            generator, sequences
        )[:, :n]
        sets = (
            torch.cat([torch.randint(n, own.shape, generator=generator), own]),
            hard_sequences(n, n),
        )
        for precision, twin in in_precisions(count3_decoder(cfg)).items():
            ours, hard = (wrong_answers(twin, x, torch.ones_like(x) > 0) for x in sets)
            rows.append(
                {
                    "model": label,
                    "length": n,
                    **sized(cfg),
                    "precision": precision,
                    **both_scores(ours, hard),
                    "margin": min(ours.margin, hard.margin),
                }
            )
    held = {size: longest_held(size) for size in ("small", "medium", "large")}
    return {
        "paper": {size: {**sized(of_size(size, n)), "longest": n} for size, n in held.items()}
    }, columns(rows)


def counters_study(lengths: Sequence[int], largest: int) -> Study:
    """Compute Count3 in blocks of √n counters, against Conjecture 6.1.

    ``seeds``: the paper's number of prompts, 64^16.
    """
    generator = np.random.default_rng(0)
    rows = []
    for n in lengths:
        x = generator.integers(0, largest + 1, n).tolist()
        answer, steps = programs.count3_blocks(x, math.isqrt(n))
        rows.append(dict(length=n, counters=math.isqrt(n), steps=steps, right=answer == count3(x)))
    return {"seeds": float(64**16)}, columns(rows)


def shape(cfg: ModelConfig) -> Json:
    return dict(layers=cfg.n_layers, heads=cfg.n_heads, width=cfg.width)


def both_scores(ours: Answers, hard: Answers) -> Json:
    """Return asked and wrong answers of random and of hard sequences, as columns."""
    return {
        "asked": ours.asked,
        "wrong": ours.wrong,
        "hard_asked": hard.asked,
        "hard_wrong": hard.wrong,
    }


def largest_weight(model: Transformer) -> Json:
    """Return the name and size of the largest weight."""
    sizes = {name: largest(p) for name, p in model.named_parameters()}
    name = max(sizes, key=sizes.get)
    return {"largest_weight_in": name, "largest_weight": sizes[name]}


def random_pairs(
    length: int, max_value: int, pairs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw random sequences (B, length) and exactly ``pairs`` scored prefixes among them.

    There are just enough sequences for at most 32 prefixes per sequence on average.
    """
    rows = -(-pairs // min(32, length))
    tokens_BT = torch.randint(max_value + 1, (rows, length), generator=generator)
    scored = torch.zeros(tokens_BT.numel(), dtype=torch.bool)
    scored[torch.randperm(tokens_BT.numel(), generator=generator)[:pairs]] = True
    return tokens_BT, scored.view_as(tokens_BT)


def wrong_generations(
    model: Transformer, sequences: int, seed_length: int, generator: torch.Generator
) -> int:
    """Count the random prompts that the model does not continue as Count3 does, to its full
    length.
    """
    length = model.cfg.max_length
    prompt_BT = torch.randint(model.cfg.vocab_size, (sequences, seed_length), generator=generator)
    text_BT = generate(model, prompt_BT, length - seed_length)
    return int((text_BT != grown(prompt_BT, length)).any(1).sum())


TRACED: dict[str, Callable[[LayerTrace], Tensor]] = {
    "n - 1": lambda state: state.column("last"),
    "a = x mod n": lambda state: state.column("a"),
    "a_n": lambda state: state.column("a_n"),
    "z": lambda state: state.column("z"),
    "y": lambda state: state.column("y") + state.column("y_first"),
    "w": lambda state: state.column("w"),
    "n · mean": lambda state: state.column("mean") / state.column("inverse"),
    "answer": lambda state: state.column("answer"),
}


def traces(model: Transformer, causal: Transformer, shown: Sequence[int]) -> Json:
    """Trace both models layer by layer on one sequence.

    The trace has the final numbers by name, and how many tokens' states the mask spoils.
    """
    tokens_T = torch.tensor(shown)
    full = run_by_layer(model, tokens_T)
    masked = run_by_layer(causal, tokens_T)
    differ = [
        (a.state_TD - b.state_TD).abs().amax(1) > 1e-6 for a, b in zip(full, masked, strict=True)
    ]
    return {
        "tokens": list(shown),
        "answer": int(next_symbols(tokens_T[None], order=3)),
        "says": model.says,
        "spoiled": [int(d.sum()) for d in differ],
        "spoiled_last": [bool(d[-1]) for d in differ],
        "numbers": {name: read(before_output(full)).tolist() for name, read in TRACED.items()},
        "numbers_masked": {
            name: read(before_output(masked)).tolist() for name, read in TRACED.items()
        },
        "attention": [[head.tolist() for head in layer.attention_HTT] for layer in full],
    }
