"""The memorisation model against attention written out, many runs against single ones, and the
three studies.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import seeded
from mistakes import named
from scipy import stats

from entp_papers.compact import laws, memory
from entp_papers.compact.memory import MemoryConfig, Schedule

CFG = MemoryConfig(symbols=8, length=5, width=12, head_width=6, n_heads=2)


def attention(cfg, layer, x):
    """Attend with every key and value of every head formed."""
    z = F.layer_norm(x, x.shape[-1:])[:, None]
    v = z
    if cfg.attention_weights != "query_key":
        v = z @ layer["value"] @ layer["out"]
    heads = F.scaled_dot_product_attention(
        z @ layer["query"], z @ layer["key"], v, is_causal=cfg.architecture == "decoder"
    )
    return heads.sum(1)


@pytest.mark.parametrize(
    ("architecture", "scored"), [("decoder", "last"), ("decoder", "every"), ("entp", "last")]
)
@pytest.mark.parametrize(
    "changes",
    [
        dict(n_heads=3),
        dict(feed_forward="identity"),
        dict(attention_weights="query_key", n_heads=1),
    ],
)
def test_equals_plain_attention(architecture, scored, changes):
    cfg = replace(CFG, architecture=architecture, scored=scored, n_layers=2, **changes)
    trained, frozen = (
        {name: weight.double() for name, weight in drawn.items()}
        for drawn in memory.initial_weights(cfg, seeded(0))
    )
    tokens_ST = torch.randint(8, (5, 4), generator=seeded(1))
    x = frozen["embedding"][tokens_ST] + frozen["positions"]
    for i in range(2):
        layer = {name: trained[f"{i}.{name}"] for name in memory.layer_shapes(cfg)}
        x = memory.feed_forward(cfg, layer, x + attention(cfg, layer, x))
    scored_STD = x if scored == "every" else x[:, -1:]
    expected = F.layer_norm(scored_STD, x.shape[-1:]) @ frozen["output"]
    found = memory.scored_logits(cfg, trained, frozen, tokens_ST)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


test_mistakes_are_named = named(
    (
        lambda: MemoryConfig(scored="every", architecture="entp"),
        'scored = "every" needs architecture = "decoder"',
    ),
    (lambda: memory.capacity_study({}, {}, library=0, runs=1), "library = 0: must be"),
)


def test_models_before_training_recall_as_many_as_guesses():
    library = 256
    runs = 50
    schedule = Schedule(epochs=1, rate=1e-12, count_every=1)
    outcome = memory.train(CFG, schedule, library, range(runs))
    guesses = stats.binom(library, 1 / CFG.symbols)
    deviation = guesses.std() / math.sqrt(runs)
    mean = outcome.right_RC[:, 0].double().mean()
    assert abs(mean - guesses.mean()) < 3 * deviation


def test_runs_side_by_side_equal_single_runs():
    cfg = replace(CFG, n_layers=2)
    schedule = Schedule(epochs=6, batch_size=8, count_every=2)
    together = memory.train(cfg, schedule, 24, [0, 1, 2])
    for run, losses_C in enumerate(together.losses_RC):
        alone = memory.train(cfg, schedule, 24, [run])
        torch.testing.assert_close(losses_C, alone.losses_RC[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scored", ["last", "every"])
def test_a_small_library_is_learned_by_heart_and_runs_end_there(scored):
    schedule = Schedule(epochs=200, batch_size=8, rate=1e-2, count_every=1, until_all=True)
    cfg = replace(CFG, scored=scored, width=24)
    outcome = memory.train(cfg, schedule, 12, [0, 1])
    assert outcome.best_R.tolist() == [12, 12]
    assert outcome.epochs_C[-1] == outcome.ended_R.max() < 200


def test_the_largest_library_lies_where_recall_ends():
    schedule = dict(steps=120, batch_size=64, rate=3e-2, count_every=10)
    model = dict(symbols=8, length=5, width=6, head_width=6, feed_forward="none")
    sizes = [2, 4, 400, 500, 600]
    metrics, curves = memory.largest_library_study(model, schedule, sizes, runs=2)
    assert metrics["bounded"]
    assert metrics["best"] in (2, 4)
    assert curves["size"] == [2, 4, 400, 500]


# The capacity model and the negative binomial: printed values as read, and fits to points of a
# known law.


def test_the_law_as_printed():
    table_2 = laws.of_table_2(1)
    heads = np.array([1, 2, 4, 8])
    assert laws.saturation(table_2, heads) == pytest.approx([12_504, 16_266, 23_792, 38_843], abs=1)
    assert laws.capacity(table_2, 512, 4, 64, "min") == pytest.approx(3113, rel=0.01)
    assert laws.slope(laws.of_table_2(2), 1, 64) < 0


def test_fit_recovers_a_law_and_min_beats_max():
    law = laws.Parameters(60.0, -0.1, 0.6, 0.2, 4.0, 150.0, 900.0)
    widths_heads_lengths = itertools.product((8, 16, 32, 64), (1, 2, 4), (8, 16, 32))
    shapes = np.array([*widths_heads_lengths], float).T
    measured = laws.capacity(law, *shapes)
    r2 = {}
    for form in laws.FORMS:
        found = laws.fit(np.column_stack([*shapes, measured]), form)
        r2[form] = laws.quality(measured, laws.capacity(found, *shapes, form))["r2"]
    assert r2["min"] > 0.999
    assert r2["min"] > r2["max"]


def test_the_negative_binomial_is_found_again_and_another_law_is_rejected():
    epochs = stats.nbinom(6, 0.1).rvs(4000, random_state=0)
    found = laws.fit_epochs(epochs.tolist())
    assert found["r"] == pytest.approx(6, rel=0.1)
    assert found["p"] == pytest.approx(0.1, rel=0.1)
    assert found["p_value"] > 0.01
    assert laws.by_moments(epochs) == pytest.approx((6, 0.1), rel=0.2)
    two_humps = [10, 11, 12] * 100 + [100, 101, 102] * 100
    assert laws.fit_epochs(two_humps)["p_value"] < 1e-6


@pytest.mark.parametrize("epochs", [[3, 3, 4], [1] * 999 + [20]])
def test_too_few_different_epochs_are_not_fitted(epochs):
    assert laws.fit_epochs(epochs) is None
