"""Two models side by side, live in a notebook, and the data of its interactive pieces.

A reader types a prompt and sees what each model answers and where it looks. ``results/play/``
stores the tables that need weights, which are not in git: ``python -m entp_papers.entp.playground``
makes them from the weights of the runs that they name. Nothing here decides a claim.

Letters: B batch, T tokens, V vocabulary, L layers, H heads.
"""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from entp_lab import figures, paths
from entp_lab.configs import Json, RunConfig
from entp_lab.frames import select
from entp_lab.parameters import NotebookParameters
from entp_lab.store import Record, Store
from entp_lab.studies import seeded
from entp_lab.texts import read_text
from entp_lab.weights import find_weights, load_model, load_tokenizer, trained_model
from entp_lib import costs
from entp_lib.config import ModelConfig
from entp_lib.files import write_atomically
from entp_lib.model import Transformer
from entp_lib.tasks import Counting, build_task
from entp_lib.tasks.triplets import Triplets
from entp_lib.validation import require
from entp_papers.entp.count3 import ARCHITECTURES, COUNT3
from entp_papers.entp.pairless import every, grown
from entp_papers.entp.rasp.constructed import constructed_count3, run_by_layer

Codec = tuple[Callable[[str], list[int]], Callable[[list[int]], str]]  # encode and decode
BY_HAND = {"constructed": "entp", "constructed, causal": "decoder"}
LENGTH = 12  # of the constructed model's sequences
LARGEST = 9


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 90: two models, trained or written by hand, and a text to continue."""

    first: str = "match3/76294a0d3f551650"
    second: str = "match3/d0f9cafba4f206ce"
    beginning: str = "8 3 9 0 3 8 1 3"

    def __post_init__(self):
        super().__post_init__()
        for field in ("first", "second"):
            name = getattr(self, field)
            require(
                name in BY_HAND or "/" in name or name.endswith(".safetensors"),
                f"{field} = {name!r}: write experiment/id, the path of a file of weights, or one "
                f"of {', '.join(map(repr, BY_HAND))}",
            )
            if name in BY_HAND:
                player(name).tokens(self.beginning)
        require(
            self.first != self.second,
            f"first and second are both {self.first!r}: name two models to compare",
        )


@dataclass(frozen=True)
class Player:
    """A model with its functions from text to tokens and back.

    ``task``: the task by which every prefix has a right answer, the token ``first_label`` plus the
    task's label; None if there is no such task.
    """

    name: str
    model: Transformer
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    task: Triplets | None = None
    first_label: int = 0

    def tokens(self, text: str) -> Tensor:
        """Return the last tokens of ``text`` that the model can read, (T,).

        ConfigError for no tokens, unknown symbols and, if prefixes have answers, for more tokens
        than the model can read.
        """
        ids = self.encode(text)
        most = self.model.cfg.max_length
        require(ids, "type at least one token")
        require(
            self.task is None or len(ids) <= most,
            f"{len(ids)} numbers: this model reads at most {most}",
        )
        return torch.tensor(ids[-most:])

    def word(self, token: int) -> str:
        """Return one token as text, without space around it."""
        return self.decode([token]).strip()

    def right(self, tokens_BT: Tensor) -> Tensor:
        """Return the right token after every prefix, (B, T)."""
        return self.task.labels(tokens_BT) + self.first_label

    @torch.no_grad()
    def probabilities(self, tokens_BT: Tensor) -> Tensor:
        """Return the probability of every token after every prefix, (B, T, V), in fp64."""
        return self.model(tokens_BT).double().softmax(-1).view(*tokens_BT.shape, -1)


def codec(path: Path, config: RunConfig) -> Codec:
    """Return functions from text to the tokens of the weights at ``path`` and back."""
    require(
        config.task in ("text", "triplets", "counting"),
        f"{config.experiment} was trained on {config.task!r}: name a run on counting, triplets or "
        "text",
    )
    if config.task == "text":
        tokenizer = load_tokenizer(path, config)
        return lambda text: tokenizer.encode([text], ended=False).tolist(), tokenizer.decode
    if config.task == "counting":
        return codec_of(config.model.vocab_size)
    return codec_of(build_task(config.task, config.task_params).symbols)


def codec_of(symbols: int) -> Codec:
    """Return functions from numbers separated by spaces to tokens and back.

    Labels are numbers from 0, whose ids follow those of the symbols.
    """
    places = {str(i): i for i in range(symbols)}

    def encode(text: str) -> list[int]:
        parts = text.replace(",", " ").split()
        for part in parts:
            require(
                part in places, f"{part!r}: this model's tokens are the numbers 0 to {symbols - 1}"
            )
        return [places[part] for part in parts]

    def decode(ids: list[int]) -> str:
        return " " + " ".join(str(i if i < symbols else i - symbols) for i in ids)

    return encode, decode


def player(name: str) -> Player:
    """Load the model of a finished run, "experiment/id", or one written by hand, named in
    ``BY_HAND``.
    """
    if name in BY_HAND:
        model = constructed_count3(LENGTH, LARGEST, BY_HAND[name])
        count3 = Triplets(LENGTH, LARGEST + 1, modulus=0, anchor="last", output="count")
        return Player(name, model, *codec_of(model.cfg.vocab_size), count3)
    path = find_weights(name)
    config, model = trained_model(path)
    require(
        not config.model.open_prompt,
        f"{name} is a prefix decoder, which no text alone tells where its prompt ends: name a "
        "decoder, ENTP or hybrid",
    )
    task = build_task(config.task, config.task_params) if config.task == "triplets" else None
    return Player(name, model, *codec(path, config), task, task.symbols if task else 0)


def labels(pair: list[Player]) -> list[str]:
    """Return names of two models in tables: their architectures, or their own names where these are
    the same.
    """
    kinds = [figures.NAMES[who.model.cfg.architecture] for who in pair]
    return kinds if kinds[0] != kinds[1] else [who.name for who in pair]


def answered(pair: list[Player]) -> Triplets | None:
    """Return the task by which both models' answers are judged, or None if none is common."""
    first, second = pair
    return first.task if first.task == second.task else None


def common_task(pair: list[Player]) -> Triplets:
    """Return ``answered``; ConfigError where it is None."""
    task = answered(pair)
    require(
        task is not None,
        f"{pair[0].name} and {pair[1].name} have no task in common by which answers are right",
    )
    return task


def compared(pair: list[Player], sequences: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return both models' answers to random sequences: ``sequence``, ``truth``, and each model's
    answers, a row per sequence.

    Answers are in the order of the prefixes; ``right: …`` says whether all of a model's are
    right. ConfigError where the models have no task in common.
    """
    x_BT = common_task(pair).batch(seeded(seed), sequences).inputs_BT
    right_BT = pair[0].right(x_BT)

    def words(who: Player, rows_BT: Tensor) -> list[str]:
        return [who.decode(row).strip() for row in rows_BT.tolist()]

    table = pd.DataFrame({"sequence": words(pair[0], x_BT), "truth": words(pair[0], right_BT)})
    for who, label in zip(pair, labels(pair), strict=True):
        said_BT = who.probabilities(x_BT).argmax(-1)
        table[label] = words(who, said_BT)
        table[f"right: {label}"] = (said_BT == right_BT).all(1).tolist()
    return table


def side_by_side(pair: list[Player], text: str) -> pd.DataFrame:
    """Return a row per prefix of ``text``: the right answer, each model's, and its p(right)."""
    common_task(pair)
    x_BT = pair[0].tokens(text)[None]
    right_T = pair[0].right(x_BT)[0]
    names = [pair[0].word(i) for i in x_BT[0].tolist()]
    table = pd.DataFrame({"prefix": [" ".join(names[:n]) for n in range(1, len(names) + 1)]})
    table["truth"] = [pair[0].word(i) for i in right_T.tolist()]
    for who, label in zip(pair, labels(pair), strict=True):
        p_TV = who.probabilities(who.tokens(text)[None])[0]
        said = p_TV.argmax(-1).tolist()
        table[label] = [
            f"{who.word(i)} {'✓' if i == r else '✗'}" for i, r in zip(said, right_T, strict=True)
        ]
        table[f"p(truth), {label}"] = p_TV.gather(1, right_T[:, None])[:, 0].tolist()
    return table


@torch.no_grad()
def expected(who: Player, text: str, most: int = 8) -> pd.DataFrame:
    """Return the likeliest next tokens after ``text``: columns ``token`` and ``probability``, at
    most ``most`` rows.
    """
    tokens_1T = who.tokens(text)[None]
    length = tokens_1T.shape[1]
    scored_1T = torch.arange(1, length + 1)[None] == length
    p_V = who.model(tokens_1T, scored_1T, torch.tensor([length]))[0].double().softmax(-1)
    best = p_V.topk(min(most, len(p_V)))
    names = [who.word(i) or repr(who.decode([i])) for i in best.indices.tolist()]
    return pd.DataFrame({"token": names, "probability": best.values.tolist()})


def looks(who: Player, text: str) -> Tensor:
    """Return the attention of the last position in every layer, a mean over heads, (L, T)."""
    return torch.stack(
        [layer.attention_HTT[:, -1].mean(0) for layer in run_by_layer(who.model, who.tokens(text))]
    )


def draw(pair: list[Player], text: str):
    """Draw each model's probability of the right answer or next tokens, and its attention."""
    above = ["both", "both"] if answered(pair) is not None else [0, 1]
    figures.use_style()
    fig, axes = plt.subplot_mosaic([above, ["looks 0", "looks 1"]], figsize=(7.2, 4.4))
    kinds = [who.model.cfg.architecture for who in pair]
    colours = [figures.PALETTE[kind] for kind in kinds]
    if kinds[0] == kinds[1]:
        colours[1] = figures.OTHERS[0]
    if "both" in axes:
        table = side_by_side(pair, text)
        right = table.filter(like="p(truth)").rename(columns=lambda name: name.partition(", ")[2])
        right.index = [
            f"… {prefix.split()[-1]}\n{truth}"
            for prefix, truth in zip(table["prefix"], table["truth"], strict=True)
        ]
        right.plot.bar(
            ax=axes["both"],
            color=colours,
            width=0.8,
            rot=0,
            legend=False,
            ylim=(0, 1),
            ylabel="probability",
            xlabel="after the number … (below it: the right answer)",
            title="Probability of the right answer after each prefix",
        )
        figures.legend(fig)
    for k, who in enumerate(pair):
        if k in axes:
            expected(who, text).plot.bar(
                x="token",
                ax=axes[k],
                color=colours[k],
                rot=0,
                legend=False,
                ylim=(0, 1),
                ylabel="probability",
                xlabel="next token",
                title=who.name,
            )
        looks_LT = looks(who, text)
        ax = axes[f"looks {k}"]
        marks = [who.word(i) or "␣" for i in who.tokens(text).tolist()]
        layers = range(1, len(looks_LT) + 1)
        figures.heat(
            ax, looks_LT.numpy(), cmap="Greys", square=False, xticklabels=marks, yticklabels=layers
        )
        ax.tick_params(labelsize=6)
        ax.set(title=f"where the last position looks: {labels(pair)[k]}", ylabel="layer")
    return fig


def playground(first: Player, second: Player, text: str):
    """Return a widget with a text box, and below it the two models' answers or an error message."""
    import ipywidgets

    pair = [first, second]
    typed = ipywidgets.Text(value=text, description="beginning", continuous_update=False)
    said = ipywidgets.Label()
    image = ipywidgets.Image(format="png")

    def show(_=None) -> None:
        try:
            fig = draw(pair, typed.value)
        except ValueError as error:  # including ConfigErrors: the typed text is not valid
            said.value = str(error)
            return
        said.value = ""
        image.value = png(fig)
        plt.close(fig)

    typed.observe(show, "value")
    show()
    return ipywidgets.VBox([typed, said, image])


# Charts with sliders, which JupyterLab draws itself from Vega-Lite 5, without a network.
CHART = "application/vnd.vegalite.v5+json"


def png(figure) -> bytes:
    """Return a figure as a PNG of 64 colours at reading size, because notebooks must stay small."""
    drawn = io.BytesIO()
    small = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=90)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="PNG", optimize=True)
    return small.getvalue()


def show(chart, figure, alt: str) -> None:
    """Display an Altair chart or, where it cannot be drawn, a figure of one state or a text."""
    from IPython.display import display

    shown = {CHART: chart.to_dict(), "image/png": png(figure), "text/plain": alt}
    display(shown, raw=True, metadata={"image/png": {"alt": alt}})
    plt.close(figure)


STORED = paths.of_repository("results") / "play"  # a part of the project
# Data of the interactive pieces: answers and attention of the three models of Count3 at its
# plateau, random seed 0.
TIER = "overnight"
EXAMPLE = (3, 1, 4, 1)  # continued by Count3; one of its pictures is the slider's


def runs() -> list[Record]:
    """Return the records whose models the pieces show, one of each architecture; empty if one is
    missing.
    """
    planned = select(COUNT3.plan(TIER, 1), arm=ARCHITECTURES, task="count3")
    return COUNT3.found(Store(read_only=True), planned) or []


@torch.no_grad()
def answers(task: Counting, model: Transformer) -> Json:
    """Continue every prompt by Count3, and return the model's answers after each scored prefix.

    They are strings by prefix length, with a digit per prompt; prompts are in the order of their
    digits. The task must have at most ten symbols and positions.
    """
    lengths = torch.arange(1, task.length + 1)
    found = []
    for rows_BT in grown(every(task.symbols, task.seed_length), task.length).split(500):
        prompts_B = torch.full((len(rows_BT),), task.seed_length)
        logits_NV = model(
            rows_BT, (lengths >= task.first_scored).expand(len(rows_BT), -1), prompts_B
        )
        found.append(logits_NV.argmax(-1).view(len(rows_BT), -1))
    columns = torch.cat(found).T.tolist()
    return {str(n): "".join(map(str, said)) for n, said in enumerate(columns, task.first_scored)}


def by_prefix(model: Transformer, tokens_T: Tensor) -> list:
    """Return attention in whole per cent on every prefix: prefix, layer, head, row, column."""
    prefixes = (run_by_layer(model, tokens_T[:n]) for n in range(1, len(tokens_T) + 1))
    return [
        [(100 * layer.attention_HTT).round().int().tolist() for layer in layers]
        for layers in prefixes
    ]


def collect() -> dict[str, Json]:
    """Make both tables from the weights of the runs. ConfigError names the command that makes
    missing weights.
    """
    records = runs()
    task = build_task(records[0].config.task, records[0].config.task_params)
    tokens_T = grown(torch.tensor([EXAMPLE]), task.length)[0]
    models = []
    maps = []
    for record in records:
        name = f"{record.experiment}/{record.id}"
        model = load_model(name)
        kind = record.config.model.architecture
        models.append(
            {
                "run": name,
                "architecture": kind,
                "tier": TIER,
                "token_accuracy": record.metrics["token_accuracy"],
                "answers": answers(task, model),
            }
        )
        # a prefix decoder's attention also depends on the length of its prompt
        if kind != "prefix_decoder":
            maps.append({"name": kind, "run": name, "maps": by_prefix(model, tokens_T)})
    by_hand = by_prefix(constructed_count3(len(tokens_T), LARGEST), tokens_T)
    maps.append({"name": "constructed", "run": "weights by hand", "maps": by_hand})
    held_B = task.is_held_out(every(task.symbols, task.seed_length))
    count3 = {
        "length": task.length,
        "seed_length": task.seed_length,
        "symbols": task.symbols,
        "first_scored": task.first_scored,
        "held_out": "".join(map(str, held_B.int().tolist())),
        "models": models,
    }
    return {"count3": count3, "attention": {"tokens": tokens_T.tolist(), "models": maps}}


def sequence_cost(kind: str, tokens: int, width: int, layers: int) -> int:
    """Count the multiply-adds of all next tokens of a sequence, the output layer left out
    (``entp_lib.costs``).
    """
    cfg = ModelConfig(
        kind, n_layers=layers, n_heads=1, width=width, vocab_size=1, max_length=tokens
    )
    each = costs.encoder_token if kind == "entp" else costs.decoder_token
    return sum(each(cfg, n) - costs.head(cfg) for n in range(1, tokens + 1))


def stored(name: str) -> Json:
    """Return a table: ``count3`` or ``attention``. ConfigError where it is missing."""
    return json.loads(read_text(STORED / f"{name}.json"))


if __name__ == "__main__":
    for name, table in collect().items():
        write_atomically(
            STORED / f"{name}.json", (json.dumps(table, separators=(",", ":")) + "\n").encode()
        )
