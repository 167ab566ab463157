"""Pictures with sliders in notebooks: Vega-Lite 5, which JupyterLab draws itself, untrusted and without a network.

Each has a PNG of one of its states as a fallback, for readers that draw no Vega-Lite. JupyterLab 4.6 does not
draw version 6.
"""

import io
import itertools
from typing import Any

import pandas as pd

from entp_lib.architectures import ARCHITECTURES
from entp_lib.experiments.figures import round_drawn
from entp_lib.experiments.ledger_figures import VERDICT_COLOURS, by_task, short
from entp_lib.statistics import to_figures

MIME = "application/vnd.vegalite.v5+json"
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"  # a name, which nothing fetches
HEADER = {"labelOrient": "top", "labelAnchor": "start", "labelFontWeight": "bold"}  # of a panel of small multiples


def show(spec: dict[str, Any], png: bytes, alt: str) -> None:
    """Display a specification, with a PNG and words for whoever cannot draw it."""
    from IPython.display import display

    display({MIME: spec, "image/png": png, "text/plain": alt}, raw=True, metadata={"image/png": {"alt": alt}})


def png(figure) -> bytes:
    """A figure as a PNG of 64 colours, at the size it is read at: notebooks must stay small."""
    from PIL import Image

    round_drawn(figure)
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=90)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="PNG", optimize=True)
    return small.getvalue()


def slider(name: str, low: float, high: float, value: float, words: str) -> dict[str, Any]:
    """A parameter with a slider over whole numbers."""
    return {"name": name, "value": value, "bind": {"input": "range", "min": low, "max": high, "step": 1, "name": words}}


def channel(field: str, kind: str, **more: Any) -> dict[str, Any]:
    """How a field of the data is drawn."""
    return {"field": field, "type": kind, **more}


def colours(names: list[str]) -> dict[str, Any]:
    """The scale with the colour of each architecture; green for what is none."""
    found = [ARCHITECTURES[name].colour if name in ARCHITECTURES else "#009E73" for name in names]
    return {"domain": names, "range": found}


def attention(table: dict[str, Any]) -> dict[str, Any]:
    """Attention maps of every prefix, one panel a model; sliders for prefix and layer. ``table``: of ``playground``.

    Means over heads. Of the constructed model the layer that selects the positions that count is shown at every layer.
    """
    lines = ["m,l,n,i,j,v"]  # one text: as rows it would be ten times as long
    for model in table["models"]:
        layers = {0: -6} if model["name"] == "constructed" else {k + 1: k for k in range(len(model["maps"][0]))}
        for shown, layer in layers.items():
            for n, maps in enumerate(model["maps"], 1):
                for i, j in itertools.product(range(n), repeat=2):
                    mean = round(sum(head[i][j] for head in maps[layer]) / len(maps[layer]))
                    lines += [f"{model['name']},{shown},{n},{i + 1},{j + 1},{mean}"] if mean else []
    length, kinds = len(table["tokens"]), [m["name"] for m in table["models"]]
    places = {"domain": list(range(1, length + 1))}
    return {
        "$schema": SCHEMA,
        "description": "Attention of every prefix of a Count3 sequence; a row looks at a column.",
        "data": {"values": "\n".join(lines), "format": {"type": "csv"}},
        "params": [slider("prefix", 1, length, length - 3, "prefix "), slider("layer", 1, 3, 3, "layer ")],
        "transform": [{"filter": "datum.n == prefix && (datum.l == layer || datum.l == 0)"}],
        "mark": {"type": "rect", "tooltip": True},
        "width": 200,
        "height": 200,
        "encoding": {
            "column": channel("m", "nominal", title=None, sort=kinds),
            "x": channel("j", "ordinal", title="at whom", scale=places),
            "y": channel("i", "ordinal", title="who looks", scale=places),
            "color": channel("m", "nominal", legend=None, scale=colours(kinds)),
            "opacity": channel("v", "quantitative", scale={"domain": [0, 100]}, title="per cent"),
        },
    }


def costs() -> dict[str, Any]:
    """Multiply-adds of a sequence against its length, decoder and ENTP, with sliders for width and layers.

    The sums over 1 to n of the formulas of ``entp_lib.models.costs``, output layer left out. A parameter must not be
    called ``width`` or ``height``: those are the picture's own.
    """
    one, two = "datum.n * (datum.n + 1) / 2", "datum.n * (datum.n + 1) * (2 * datum.n + 1) / 6"
    entp = f"layers * (12 * {one} * pow(2, 2 * logwidth) + 2 * {two} * pow(2, logwidth))"
    decoder = f"layers * (12 * datum.n * pow(2, 2 * logwidth) + 2 * {one} * pow(2, logwidth))"
    kinds, work = ["decoder", "entp"], "multiply-adds of a sequence"
    return {
        "$schema": SCHEMA,
        "description": "What a sequence costs, decoder and ENTP, against its length.",
        "data": {"values": [{"n": 2**k, "kind": kind} for k in range(3, 15) for kind in kinds]},
        "params": [slider("logwidth", 4, 13, 9, "log2 of the width "), slider("layers", 1, 48, 6, "layers ")],
        "transform": [{"calculate": f"datum.kind == 'entp' ? {entp} : {decoder}", "as": "work"}],
        "mark": {"type": "line", "point": True, "tooltip": True},
        "width": 420,
        "height": 260,
        "encoding": {
            "x": channel("n", "quantitative", scale={"type": "log", "base": 2}, title="tokens"),
            "y": channel("work", "quantitative", scale={"type": "log"}, title=work),
            "color": channel("kind", "nominal", title=None, scale=colours(kinds)),
        },
    }


def intervals(ledger: pd.DataFrame) -> dict[str, Any]:
    """The ledger's measured claims, rounded, with tooltips; a panel for each task and unit, with an axis of its own."""
    measured = ledger[(ledger["kind"] == "empirical") & ledger["our_value"].notna()]
    names = ["id", "statement", "unit", "our_value", "low", "high", "paper_value", "verdict", "tier", "seeds"]
    rows = []
    for task, part in by_task(measured).items():
        for row in part[names].astype(object).where(part[names].notna(), None).to_dict("records"):
            for name, value in row.items():
                row[name] = to_figures(value)
                # without its point, so that JupyterLab, which has one kind of number, saves what it opened
                if isinstance(row[name], float) and row[name].is_integer():
                    row[name] = int(row[name])
            rows.append(row | {"task": task, "claim": short(row["statement"], 70, 1)})
    scale = {"domain": list(VERDICT_COLOURS), "range": list(VERDICT_COLOURS.values())}
    tooltip = [{"field": name} for name in names]
    y = channel("claim", "nominal", sort=None, axis={"title": None, "labelLimit": 400})
    colour = channel("verdict", "nominal", scale=scale, legend={"orient": "top", "title": None})

    def layer(mark: dict, field: str, **more: Any) -> dict[str, Any]:
        x = channel(field, "quantitative", title=None)
        return {"mark": mark, "encoding": {"x": x, "y": y, "tooltip": tooltip, **more}}

    return {
        "$schema": SCHEMA,
        "description": "Our mean and 95 % interval and the paper's value, for every measured claim, by task.",
        "data": {"values": rows},
        "facet": {"row": {"field": "task", "sort": None, "title": None, "header": HEADER}},
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": 380,
            "height": {"step": 28},
            "layer": [
                layer({"type": "rule", "strokeWidth": 3}, "low", x2={"field": "high"}, color=colour),
                layer({"type": "point", "filled": True, "size": 60}, "our_value", color=colour),
                layer({"type": "text", "text": "×", "fontSize": 15}, "paper_value"),
                {"mark": {"type": "rule", "color": "grey"}, "encoding": {"x": {"datum": 0}}},
            ],
        },
    }
