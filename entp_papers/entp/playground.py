"""Two models side by side, live in a notebook: type a beginning, see what each expects next and where it looks."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import torch
from torch import Tensor, nn

from entp_lib.experiments import figures
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.models import Transformer
from entp_lib.records.loading import load_run
from entp_lib.reports import vega
from entp_lib.reports.generation import codec
from entp_lib.validation import require
from entp_papers.entp.playing import attention
from entp_papers.entp.rasp.constructed import ConstructedCount3, constructed_count3, run_by_layer

BY_HAND = {"constructed": "entp", "constructed, causal": "decoder"}
LENGTH, LARGEST = 12, 9  # of the constructed model's sequences


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """What notebook 90 accepts: the two models, runs or written by hand, and what they continue."""

    first: str = "constructed, causal"
    second: str = "constructed"
    beginning: str = "3 1 4 1"

    def __post_init__(self):
        super().__post_init__()
        for field in ("first", "second"):
            name = getattr(self, field)
            known = name in BY_HAND or "/" in name or name.endswith(".safetensors")
            require(known, f"{field} = {name!r}: write experiment/id, or one of {', '.join(map(repr, BY_HAND))}")
            if name in BY_HAND:
                player(name).tokens(self.beginning)


@dataclass(frozen=True)
class Player:
    """A model with what turns text into its tokens and back."""

    name: str
    model: Transformer
    encode: object
    decode: object

    def tokens(self, text: str) -> Tensor:
        """The last tokens of ``text`` that the model can read, (T,). ConfigError for none or unknown symbols."""
        ids = self.encode(text)
        require(bool(ids), "type at least one token")
        return torch.tensor(ids[-self.model.cfg.max_length :])


def player(name: str) -> Player:
    """The model of a finished run, "experiment/id", or one written by hand: "constructed", "constructed, causal"."""
    if name in BY_HAND:
        model = constructed_count3(LENGTH, LARGEST, BY_HAND[name])
        return Player(name, model, lambda text: numbers(text, model.cfg.vocab_size), lambda ids: str(ids[0]))
    config, model = load_run(name)
    encode, decode = codec(config)
    return Player(name, model, encode, decode)


def numbers(text: str, vocabulary: int) -> list[int]:
    """Whole numbers below ``vocabulary``, with spaces between them. ConfigError names another."""
    parts = text.replace(",", " ").split()
    wrong = next((part for part in parts if not part.isdecimal() or int(part) >= vocabulary), None)
    require(wrong is None, f"{wrong!r}: this model's tokens are the numbers 0 to {vocabulary - 1}")
    return [int(part) for part in parts]


@torch.no_grad()
def expected(who: Player, text: str, most: int = 8) -> pd.DataFrame:
    """The likeliest next tokens after ``text``: columns ``token`` and ``probability``, at most ``most`` rows."""
    tokens_T = who.tokens(text)
    wanted_BT = torch.zeros(1, len(tokens_T), dtype=torch.bool)
    wanted_BT[0, -1] = True
    prompts = torch.tensor([len(tokens_T)]) if who.model.cfg.open_prompt else None
    p_V = who.model(tokens_T[None], wanted_BT, prompts)[0].double().softmax(-1)
    best = p_V.topk(min(most, len(p_V)))
    names = [who.decode([i]).strip() or repr(who.decode([i])) for i in best.indices.tolist()]
    return pd.DataFrame({"token": names, "probability": best.values.tolist()})


@torch.no_grad()
def looks(who: Player, text: str) -> Tensor:
    """Where the last position looks in every layer, (L, T): means over heads of its attention."""
    tokens_T = who.tokens(text)
    model: nn.Module = who.model
    if isinstance(model, ConstructedCount3):
        layers = [trace.attention_HTT for trace in run_by_layer(model, tokens_T)]
    else:
        layers = attention(model, tokens_T)
    return torch.stack([a_HTT[:, -1].mean(0) for a_HTT in layers])


def draw(pair: list[Player], text: str):
    """For each model a row of bars, what it expects, and a map of where its last position looks, layer by layer."""
    fig, axes = figures.panels(2, len(pair), width=3.6, height=2.2, squeeze=False)
    for row, who in zip(axes, pair, strict=True):
        table, colour = expected(who, text), figures.PALETTE[who.model.cfg.architecture]
        sns.barplot(table, x="token", y="probability", color=colour, saturation=1, errorbar=None, ax=row[0])
        row[0].set(title=who.name, ylabel="probability", xlabel="next token", ylim=(0, 1))
        looks_LT = looks(who, text)
        marks = [who.decode([i]).strip() or "␣" for i in who.tokens(text).tolist()]
        layers = range(1, len(looks_LT) + 1)
        figures.heat(row[1], looks_LT.numpy(), cmap="Greys", square=False, xticklabels=marks, yticklabels=layers)
        row[1].tick_params(labelsize=6, rotation=0)
        row[1].set(title="where the last position looks", ylabel="layer")
    return fig


def playground(first: str, second: str, text: str):
    """A box to type into and the two models' answer below it, as a widget. ConfigErrors are said in it."""
    import ipywidgets

    pair = [player(first), player(second)]
    typed = ipywidgets.Text(value=text, description="beginning", continuous_update=False)
    said, image = ipywidgets.Label(), ipywidgets.Image(format="png")

    def show(_=None) -> None:
        try:
            fig = draw(pair, typed.value)
        except ValueError as error:  # ConfigErrors among them: what was typed will not do
            said.value = str(error)
            return
        said.value, image.value = "", vega.png(fig)
        plt.close(fig)

    typed.observe(show, "value")
    show()
    return ipywidgets.VBox([typed, said, image])
