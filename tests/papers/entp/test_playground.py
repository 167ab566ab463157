"""Two models side by side, and the pictures with sliders: what they show is what the models
compute.
"""

import io

import pytest
import torch
from mistakes import named
from PIL import Image

from entp_lib import costs
from entp_lib.config import ModelConfig
from entp_lib.tasks.counting import count3
from entp_lib.tasks.triplets import triplet_label
from entp_lib.validation import ConfigError
from entp_papers.entp import playground


@pytest.mark.parametrize("text", ["3 1 4 1", "7, 7 7", "1 2 3 4 5 6 7 8 9"])
def test_the_constructed_model_expects_count3(text):
    who = playground.player("constructed")
    assert int(playground.expected(who, text)["token"][0]) == count3(
        [int(x) for x in text.replace(",", " ").split()]
    )


def test_probabilities_and_attention_add_up():
    for name in playground.BY_HAND:
        who = playground.player(name)
        assert playground.expected(who, "3 1 4 1", most=100)["probability"].sum() == pytest.approx(
            1
        )
        looks_LT = playground.looks(who, "3 1 4 1")
        assert looks_LT.shape == (who.model.cfg.n_layers, 4)
        assert torch.allclose(looks_LT.sum(1), torch.ones(len(looks_LT), dtype=looks_LT.dtype))


test_models_that_cannot_be_compared_are_named = named(
    (
        lambda: playground.Parameters(first="constructed", second="constructed"),
        "first and second are both",
    ),
    (lambda: playground.Parameters(first="match3"), "first = 'match3'"),
)


@pytest.mark.parametrize(
    ("text", "said"), [("", "at least one token"), ("3 x", "'x': this model's"), ("99", "'99'")]
)
def test_what_will_not_do_is_said_in_the_widget(text, said):
    box = playground.playground(
        *(playground.player(name) for name in playground.BY_HAND), "3 1 4 1"
    )
    typed, label, image = box.children
    before = image.value
    assert Image.open(io.BytesIO(before)).width > 300 and label.value == ""
    typed.value = text
    assert said in label.value and image.value == before
    typed.value = "1 2 3"
    assert label.value == "" and image.value != before


@pytest.fixture(scope="module")
def trained():
    """Load the pair of the defaults, whose weights git keeps."""
    defaults = playground.Parameters()
    return [playground.player(name) for name in (defaults.first, defaults.second)]


def test_the_default_pair_differs_where_it_is_said_to(trained):
    """Truth by the definition of the task; shares near those of the two records, 0.77 and 0.97."""
    table = playground.compared(trained, sequences=300)
    for text, truth in zip(table["sequence"].head(20), table["truth"], strict=False):
        x = [int(i) for i in text.split()]
        assert truth == " ".join(
            str(triplet_label(x[:n], 11, "first", "exists")) for n in range(1, 9)
        )
    for label in ("decoder", "ENTP"):
        assert (table[f"right: {label}"] == (table[label] == table["truth"])).all()
    assert table["right: decoder"].mean() == pytest.approx(0.77, abs=0.08)
    assert table["right: ENTP"].mean() == pytest.approx(0.97, abs=0.04)
    shown = playground.differing(table)
    assert len(shown) == 6 and all(
        ("✓" in a) != ("✓" in b) for a, b in zip(shown["decoder"], shown["ENTP"], strict=True)
    )
    assert list(playground.shares(table).index) == [
        "both",
        "ENTP alone",
        "decoder alone",
        "neither",
    ]


def test_both_models_stand_side_by_side_after_each_prefix(trained):
    beginning = playground.Parameters().beginning
    table = playground.side_by_side(trained, beginning)
    assert table["prefix"].tolist()[-1] == beginning and table["ENTP"].str.endswith("✓").all()
    wrong = table["decoder"].str.endswith("✗")
    assert wrong.any() and (wrong == (table["p(truth), decoder"] < 0.5)).all()
    assert set(playground.draw(trained, beginning).axes[0].get_legend_handles_labels()[1]) == {
        "decoder",
        "ENTP",
    }
    bars = playground.draw([trained[1], trained[1]], beginning).axes[0].containers
    assert bars[0][0].get_facecolor() != bars[1][0].get_facecolor()  # of one architecture


def test_what_the_models_cannot_do_is_said(trained):
    for call, said in (
        (lambda: playground.side_by_side(trained, "11"), "'11': this model's"),
        (lambda: playground.side_by_side(trained, "1 " * 9), "9 numbers: this model reads at"),
        (
            lambda: playground.compared([trained[0], playground.player("constructed")]),
            "no task in common",
        ),
        (lambda: playground.player("count3/ffffffff"), "no run count3/ffffffff"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()


def test_what_the_charts_show_is_what_the_library_computes():
    cfg = ModelConfig("entp", n_layers=3, n_heads=1, width=32, vocab_size=1, max_length=1)
    assert playground.sequence_cost("entp", 1, 32, 3) == costs.encoder_token(cfg, 1) - costs.head(
        cfg
    )
    rows = playground.attention_rows(playground.stored("attention"))
    totals = rows.groupby(["model", "layer", "prefix", "row"])["per_cent"].sum()
    assert set(rows["layer"]) == {1, 2, 3} and totals.between(94, 106).all()  # of whole per cents
    assert (rows["row"] >= rows["column"])[rows["model"] == "decoder"].all()


# Stored answers and attention maps, which the site and notebook 90 show, against the records.


def test_stored_answers_agree_with_the_records():
    """The share of right answers over all held-out prompts is near the record's, which is over
    other draws.
    """
    table = playground.stored("count3")
    runs = {f"{r.experiment}/{r.id}": r for r in playground.runs()}
    unseen = [i for i, c in enumerate(table["held_out"]) if c == "1"]
    x = torch.tensor([[int(d) for d in f"{i:0{table['seed_length']}d}"] for i in unseen])
    x = playground.grown(x, table["length"] + 1)
    for model in table["models"]:
        shares = []
        for n in range(table["first_scored"], table["length"] + 1):
            said = torch.tensor([int(model["answers"][str(n)][i]) for i in unseen])
            shares.append((said == x[:, n]).double().mean().item())
        assert sum(shares) / len(shares) == pytest.approx(model["token_accuracy"], abs=0.01)
        if model["run"] in runs:
            assert model["token_accuracy"] == runs[model["run"]].metrics["token_accuracy"]
