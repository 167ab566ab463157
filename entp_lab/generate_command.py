"""``python -m entp_lab generate RUN``: a trained model, decoder or ENTP, continues a text or a sequence of numbers."""

import argparse
import json
import logging
from collections.abc import Callable
from pathlib import Path

import torch

from entp_lab.configs import RunConfig
from entp_lab.registry import build_task
from entp_lab.weights import find_weights, load_run
from entp_lib.data.tokenizers import restore
from entp_lib.decoding import generate
from entp_lib.model import Transformer
from entp_lib.validation import ConfigError, require

Codec = tuple[Callable[[str], list[int]], Callable[[list[int]], str]]  # encode and decode
log = logging.getLogger(__name__)


def generate_command(options: argparse.Namespace) -> int:
    """``generate RUN``: print the prompt and its continuation."""
    require(options.tokens >= 1, f"--tokens {options.tokens}: must be at least 1")
    path = find_weights(options.run)
    config, model = load_run(str(path))
    sampling = dict(temperature=options.temperature, top_p=options.top_p)
    print(continued(config, model, options.prompt, options.tokens, path, options.seed, **sampling))
    return 0


def tokenizer_path(weights: Path) -> Path:
    """Path of the tokenizer of a run of ``text FILE``, or of the words of one of ``data FILE``, next to its weights."""
    return weights.with_name(weights.name.replace(".weights.safetensors", ".tokenizer.json"))


def codec(config: RunConfig, weights: Path | None = None) -> Codec:
    """(encode, decode) of a run's tokens: text to ids and back. ConfigError for tasks that have no text.

    ``weights``: their file, next to which ``text FILE`` has left the tokenizer, and ``data FILE`` the words; without
    these the user's file itself is read.
    """
    stored, path, numbers = None, weights and tokenizer_path(weights), list(map(str, range(config.model.vocab_size)))
    if path and path != weights and path.exists():
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            stored = list(about["words"]) if "words" in about else restore(**about)
        except (ValueError, KeyError, TypeError) as error:
            again = "the command that trained the run writes it again"
            raise ConfigError(f"{path}: is no tokenizer ({error}); {again}") from error
    if config.task == "text":
        tokenizer = stored or build_task("text", config.task_params).tokens().tokenizer()
        return lambda text: [int(i) for i in tokenizer.encode([text], ended=False)], tokenizer.decode
    if config.task == "table":
        if stored is None:
            task = build_task("table", config.task_params)
            right = "its models predict numbers or answers of their own, not what comes next; load_model gives one"
            require(task.table.continues, f"{task.file}: {right}")
            stored = list(task.table.words)
        return codec_of(stored or numbers)
    if config.task == "triplets":  # whose labels, numbers from 0, have ids after the symbols
        symbols = build_task(config.task, config.task_params).symbols
        encode, _ = codec_of(numbers[:symbols])
        return encode, lambda found: " " + " ".join(str(i - symbols * (i >= symbols)) for i in found)
    right = "whose tokens are neither text nor numbers that could be typed; load_model gives its model"
    require(config.task == "counting", f"{config.experiment} was trained on the task {config.task!r}, {right}")
    return codec_of(numbers)


def codec_of(words: list[str]) -> Codec:
    """(encode, decode) of words between spaces."""
    ids = {word: i for i, word in enumerate(words)}

    def encode(text: str) -> list[int]:
        parts = text.split() if all(part in ids for part in text.split()) else text.replace(",", " ").split()
        last = len(words) - 1
        numbers = (words[0], words[-1]) == ("0", str(last))
        kind = f"the numbers 0 to {last}" if numbers else f"{last + 1} words, {words[0]!r} the first"
        for part in parts:
            require(part in ids, f"{part!r}: this model's tokens are {kind}")
        return [ids[part] for part in parts]

    return encode, lambda found: " " + " ".join(words[i] for i in found)


def continued(
    config: RunConfig, model: Transformer, prompt: str, tokens: int, weights: Path | None = None, seed: int = 0, **how
) -> str:
    """``prompt`` and ``tokens`` more tokens, each drawn from what the last ``max_length`` tokens predict.

    ``how``: temperature and top_p. ConfigError for those out of range, and a prompt that the model cannot read.
    """
    encode, decode = codec(config, weights)
    right = f"--tokens {tokens}: {config.experiment}'s models answer a prompt and do not continue it: --tokens 1"
    require(config.task != "triplets" or tokens == 1, right)
    ids = encode(prompt)
    require(bool(ids), "the prompt is empty: it must have at least one token")
    require(0 <= seed < 2**63, f"seed = {seed}: must be from 0 to 2^63 - 1")
    row, room = torch.tensor([ids]), model.cfg.max_length
    how["generator"] = torch.Generator().manual_seed(seed)
    try:
        fits = min(tokens, max(0, room - len(ids) + 1))  # so many without the window moving
        if fits < tokens:
            text = "the model's length of %d is reached after %d new tokens: further ones see the last %d tokens alone"
            log.warning(text, room, fits, room)
        if fits:
            row = generate(model, row, fits, **how)
        for _ in range(tokens - fits):
            row = torch.cat([row, generate(model, row[:, -room:], 1, **how)[:, -1:]], 1)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return prompt + decode(row[0, len(ids) :].tolist())
