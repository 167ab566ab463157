"""The memorisation model against attention written out, many runs against single ones, and the
three studies.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from entp_lib.validation import ConfigError
from entp_papers.compact import laws, memory
from entp_papers.compact.laws import Parameters
from entp_papers.compact.memory import MemoryConfig, Schedule

CFG = MemoryConfig(symbols=8, length=5, width=12, head_width=6, n_heads=2)
MODEL = dict(symbols=8, length=5, width=12, head_width=6)
SCHEDULE = dict(epochs=12, batch_size=16, rate=1e-2, count_every=4)


def logits(cfg, find=memory.scored_logits):
    drawn = memory.initial_weights(cfg, torch.Generator().manual_seed(0))
    trained, frozen = ({k: v.double() for k, v in weights.items()} for weights in drawn)
    return find(
        cfg, trained, frozen, torch.randint(9, (5, 7), generator=torch.Generator().manual_seed(1))
    )


def plain(cfg, trained, frozen, tokens_ST):
    """Every key, value and position formed, one head after the other."""
    x = frozen["embedding"][tokens_ST] + frozen["positions"]
    length = x.shape[1]
    for layer in range(cfg.n_layers):
        z = F.layer_norm(x, x.shape[-1:])
        total = torch.zeros_like(x)
        for h in range(cfg.n_heads):
            q = z @ trained[f"{layer}.query"][h]
            k = z @ trained[f"{layer}.key"][h]
            scores = q @ k.transpose(1, 2) / math.sqrt(cfg.head_width)
            if cfg.architecture == "decoder":
                scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            mixing = scores.softmax(-1)
            if cfg.attention_weights == "query_key":
                total = total + mixing @ z
            else:
                total = (
                    total + mixing @ (z @ trained[f"{layer}.value"][h]) @ trained[f"{layer}.out"][h]
                )
        x = memory.feed_forward(cfg, trained, layer, x + total)
    scored_STD = x if cfg.scored == "every" else x[:, -1:]
    return F.layer_norm(scored_STD, x.shape[-1:]) @ frozen["output"]


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
@pytest.mark.parametrize(
    "shape", [dict(n_heads=3), dict(feed_forward="identity"), dict(attention_weights="query_key")]
)
def test_equals_plain_attention(architecture, shape):
    cfg = MemoryConfig(
        width=12, head_width=5, symbols=9, architecture=architecture, n_layers=2, **shape
    )
    torch.testing.assert_close(logits(cfg), logits(cfg, plain), rtol=1e-10, atol=1e-10)


def test_a_loss_at_every_position_equals_plain_attention_and_needs_a_decoder():
    cfg = MemoryConfig(width=12, head_width=5, symbols=9, n_layers=2, n_heads=2, scored="every")
    assert logits(cfg).shape == (5, 7, 9)
    torch.testing.assert_close(logits(cfg), logits(cfg, plain), rtol=1e-10, atol=1e-10)
    with pytest.raises(ConfigError, match='scored = "every" needs architecture = "decoder"'):
        MemoryConfig(scored="every", architecture="entp")


def test_a_loss_at_every_position_teaches_all_tokens_and_the_last_is_counted():
    schedule = Schedule(epochs=150, batch_size=8, rate=1e-2, count_every=50)
    cfg = MemoryConfig(**{**vars(CFG), "width": 24, "head_width": 24, "scored": "every"})
    outcome = memory.train(cfg, schedule, 8, [0, 1])
    assert outcome.best_R.tolist() == [8, 8]
    assert outcome.losses_RC[:, -1].max() < 0.5 < math.log(CFG.symbols)


def test_models_before_training_recall_as_many_as_guesses_and_scores_have_the_rank_of_a_head():
    library = 256
    runs = 50
    schedule = Schedule(epochs=1, rate=1e-12, count_every=1)
    right_R = memory.train(CFG, schedule, library, range(runs)).right_RC[:, 0].double()
    share = 1 / CFG.symbols
    assert abs(right_R.mean() - library * share) < 3 * math.sqrt(
        library * share * (1 - share) / runs
    )
    trained, _ = memory.initial_weights(CFG, torch.Generator().manual_seed(0))
    scores_HDD = trained["0.query"].double() @ trained["0.key"].double().transpose(1, 2)
    assert torch.linalg.matrix_rank(scores_HDD).tolist() == [CFG.head_width] * CFG.n_heads


def test_runs_side_by_side_equal_single_runs():
    cfg = MemoryConfig(**{**vars(CFG), "n_layers": 2})
    schedule = Schedule(epochs=6, batch_size=8, count_every=2)
    together = memory.train(cfg, schedule, 24, [0, 1, 2])
    for run in range(3):
        alone = memory.train(cfg, schedule, 24, [run])
        torch.testing.assert_close(
            together.losses_RC[run], alone.losses_RC[0], rtol=1e-4, atol=1e-4
        )


def test_a_small_library_is_learned_by_heart_and_runs_end_there():
    schedule = Schedule(epochs=200, batch_size=8, rate=1e-2, count_every=1, until_all=True)
    outcome = memory.train(CFG, schedule, 12, [0, 1])
    assert outcome.best_R.tolist() == [12, 12]
    assert outcome.epochs_C[-1] == int(outcome.ended_R.max()) < 200


def test_the_largest_library_lies_where_recall_ends():
    schedule = dict(steps=120, batch_size=64, rate=3e-2, count_every=10)
    small = dict(width=6, feed_forward="none")
    metrics, curves = memory.largest_library_study(
        {**MODEL, **small}, schedule, [2, 4, 400, 500, 600], runs=2
    )
    assert metrics["bounded"] and metrics["best"] in (2, 4)
    assert curves["size"] == [2, 4, 400, 500]


# The capacity model and the negative binomial: printed values as read, and fits to points of a
# known law.


def test_the_law_as_printed():
    table_2 = laws.of_table_2(1)
    heads = np.array([1, 2, 4, 8])
    assert laws.saturation(table_2, heads) == pytest.approx([12_504, 16_266, 23_792, 38_843], abs=1)
    assert laws.capacity(table_2, 512, 4, 64, "min") == pytest.approx(3113, rel=0.01)
    assert laws.slope(laws.of_table_2(2), 1, 64) < 0


def points(noise=0.0):
    law = Parameters(60.0, -0.1, 0.6, 0.2, 4.0, 150.0, 900.0)
    generator = np.random.default_rng(0)
    shapes = np.array(
        [(b, h, n) for b in (8, 16, 32, 64) for h in (1, 2, 4) for n in (8, 16, 32)], float
    )
    capacity = laws.capacity(law, *shapes.T) * (1 + noise * generator.standard_normal(len(shapes)))
    return np.column_stack([shapes, capacity])


def test_fit_recovers_a_law_and_min_beats_max():
    *shapes, measured = points().T
    fits = {form: laws.capacity(laws.fit(points(), form), *shapes, form) for form in laws.FORMS}
    r2 = {form: laws.quality(measured, predicted)["r2"] for form, predicted in fits.items()}
    assert r2["min"] > 0.999
    assert r2["min"] > r2["max"]
    assert laws.quality(measured, measured) == {"r2": 1.0, "rmse": 0.0, "mape": 0.0}


def test_the_negative_binomial_is_found_again_and_another_law_is_rejected():
    epochs = stats.nbinom(6, 0.1).rvs(4000, random_state=0)
    found = laws.fit_epochs(epochs.tolist())
    assert (found["r"], found["p"]) == pytest.approx((6, 0.1), rel=0.1)
    assert found["p_value"] > 0.01
    assert laws.by_moments(epochs) == pytest.approx((6, 0.1), rel=0.2)
    two_humps = np.concatenate([np.full(300, 10), np.full(300, 100)]) + np.arange(600) % 3
    assert laws.fit_epochs(two_humps.tolist())["p_value"] < 1e-6
    assert laws.fit_epochs([3, 3, 4]) is None
    assert laws.fit_epochs([1] * 999 + [20]) is None
