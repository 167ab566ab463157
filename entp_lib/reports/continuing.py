"""``python -m entp_lib generate RUN``: a trained model, decoder or ENTP, continues a text or a sequence of numbers."""

import argparse
import json
import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from entp_lib import paths
from entp_lib.validation import ConfigError, require

if TYPE_CHECKING:
    from entp_lib.records.store import Record, Store

log = logging.getLogger(__name__)
NUMBERED = ("counting",)  # tasks whose tokens are numbers, the next of which is what the model predicts


def add_parser(commands) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "generate",
        help="continue a text with the model of a finished run",
        description="Continue a text with a trained model. RUN is experiment/id of its record, as `text FILE` "
        "prints it, or a file of weights. Where tokens are numbers, as in Count3, the prompt is numbers with spaces "
        "between them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--prompt", required=True, metavar="TEXT")
    parser.add_argument("--tokens", type=int, default=100, metavar="N", help="how many to add")
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0 takes the most likely token")
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw from the likeliest tokens of mass P"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.set_defaults(command=generate_command)


def generate_command(options) -> int:
    from entp_lib.records.loading import find_weights, load_run

    require(options.tokens >= 1, f"--tokens {options.tokens}: must be at least 1")
    path = find_weights(options.run)
    config, model = load_run(str(path))
    sampling = dict(temperature=options.temperature, top_p=options.top_p, seed=options.seed)
    print(continued(config, model, options.prompt, options.tokens, weights=path, **sampling))
    return 0


def codec(config, weights: Path | None = None):
    """(encode, decode) of a run's tokens: text to ids and back. ConfigError for tasks that have no text.

    ``weights``: their file, next to which ``text FILE`` has left the tokenizer, and ``data FILE`` the words; without
    these the user's file itself is read.
    """
    from entp_lib.tasks import build_task

    if config.task == "text":
        kept = kept_tokenizer(weights) if weights else None
        tokenizer = kept or build_task("text", config.task_params).tokens().tokenizer()
        return lambda text: [int(i) for i in tokenizer.encode([text], ended=False)], tokenizer.decode
    if config.task == "table":
        words = kept_words(weights, config.model.vocab_size) if weights else None
        return codec_of(words) if words else codec_of_table(build_task("table", config.task_params))
    require(
        config.task in NUMBERED,
        f"{config.experiment} was trained on the task {config.task!r}, whose tokens are neither text nor numbers that "
        "could be typed; load_model gives its model",
    )

    return codec_of([str(number) for number in range(config.model.vocab_size)])


def tokenizer_path(weights: Path) -> Path:
    """Path of the tokenizer of a run of ``text FILE``, or of the words of one of ``data FILE``, next to its weights."""
    return weights.with_name(weights.name.replace(".weights.safetensors", ".tokenizer.json"))


def kept_tokenizer(weights: Path):
    """Tokenizer stored next to a file of weights; None where there is none. ConfigError where it is damaged."""
    from entp_lib.corpora.tokenizers import restore

    return kept(weights, "text", lambda about: restore(about["name"], about["vocabulary"], about["state"]))


def kept_words(weights: Path, symbols: int) -> list[str] | None:
    """``kept_tokenizer`` for the words of a file of sequences; the numbers below ``symbols`` where it had none."""
    return kept(weights, "data", lambda about: list(about["words"]) or [str(number) for number in range(symbols)])


def kept(weights: Path, command: str, read):
    """Apply ``read`` to the JSON next to a file of weights, written by ``command``; None where there is none."""
    path = tokenizer_path(weights)
    if path == weights or not path.exists():
        return None
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is no tokenizer ({error}); the same `{command}` command writes it again") from error


def codec_of_table(task):
    """(encode, decode) of a table's words or numbers. ConfigError where sequences cannot be continued."""
    right = (
        f"{task.file}: its models predict numbers or answers of their own, not what comes next; load_model gives one"
    )
    require(task.continues, right)
    return codec_of(list(task.contents.words) or [str(number) for number in range(task.vocab_size)])


def codec_of(words: list[str]):
    """(encode, decode) of words between spaces."""
    ids = {word: i for i, word in enumerate(words)}

    def encode(text: str) -> list[int]:
        parts = text.split() if all(part in ids for part in text.split()) else text.replace(",", " ").split()
        wrong = next((part for part in parts if part not in ids), None)
        last = len(words) - 1
        numbers = (words[0], words[-1]) == ("0", str(last))
        kind = f"the numbers 0 to {last}" if numbers else f"{last + 1} words, {words[0]!r} the first"
        require(wrong is None, f"{wrong!r}: this model's tokens are {kind}")
        return [ids[part] for part in parts]

    return encode, lambda found: " " + " ".join(words[i] for i in found)


def continued(
    config,
    model,
    prompt: str,
    tokens: int,
    *,
    temperature: float,
    top_p: float = 1.0,
    seed: int = 0,
    weights: Path | None = None,
) -> str:
    """``prompt`` and ``tokens`` more tokens, each drawn from what the last ``max_length`` tokens predict.

    ConfigError for an empty prompt, symbols that the model has not, and sampling parameters out of range.
    """
    import torch

    from entp_lib.models.decoding import generate

    encode, decode = codec(config, weights)
    ids = encode(prompt)
    require(bool(ids), "the prompt is empty: it must have at least one token")
    require(0 <= seed < 2**63, f"seed = {seed}: must be from 0 to 2^63 - 1")
    generator = torch.Generator().manual_seed(seed)
    row, room = torch.tensor([ids]), model.cfg.max_length
    try:
        fits = min(tokens, max(0, room - len(ids) + 1))  # so many without the window moving
        if fits < tokens:
            text = "the model's length of %d is reached after %d new tokens: further ones see the last %d tokens alone"
            log.warning(text, room, fits, room)
        if fits:
            row = generate(model, row, fits, temperature=temperature, top_p=top_p, generator=generator)
        for _ in range(tokens - fits):
            last = generate(model, row[:, -room:], 1, temperature=temperature, top_p=top_p, generator=generator)[:, -1:]
            row = torch.cat([row, last], 1)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return prompt + decode(row[0, len(ids) :].tolist())


def how_to_load(record: "Record", store: "Store", prompt: str = "a beginning") -> list[str]:
    """The line of Python that loads a run's weights, and the command that continues a text with them.

    By the run's name where ``load_model`` looks for it, else by the file.
    """
    from entp_lib.experiments.experiment import name_of

    usual = {paths.results().resolve(), (paths.results() / "own").resolve()} if paths.has_repository() else set()
    name = name_of(record)
    if store.root.resolve() not in usual:
        name = str(store.weights_path(record.experiment, record.id).resolve())
    return [
        f"load:    from entp_lib.records.loading import load_model; model = load_model({name!r})",
        f"go on:   {paths.program()} generate {shlex.quote(name)} --prompt {prompt!r}",
    ]
