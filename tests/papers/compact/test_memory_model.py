"""The memorisation model against a plain attention written out, and what it may and may not depend on."""

import math

import pytest
import torch
import torch.nn.functional as F

from entp_lib.validation import ConfigError
from entp_papers.compact import memory_model
from entp_papers.compact.memory_model import MemoryConfig


def weights(cfg, seed=0):
    generator = torch.Generator().manual_seed(seed)
    trained, frozen = memory_model.trained_weights(cfg, generator), memory_model.frozen_weights(cfg, generator)
    return {k: v.double() for k, v in trained.items()}, {k: v.double() for k, v in frozen.items()}


def tokens(cfg, sequences=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(cfg.symbols, (sequences, cfg.length - 1), generator=generator)


def plain(cfg, trained, frozen, tokens_ST):
    """Every key, value and position formed, one head after the other."""
    x = frozen["embedding"][tokens_ST] + frozen["positions"]
    length = x.shape[1]
    for layer in range(cfg.n_layers):
        z = F.layer_norm(x, x.shape[-1:])
        total = torch.zeros_like(x)
        for h in range(cfg.n_heads):
            q, k = z @ trained[f"{layer}.query"][h], z @ trained[f"{layer}.key"][h]
            scores = q @ k.transpose(1, 2) / math.sqrt(cfg.head_width)
            if cfg.architecture == "decoder":
                scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            mixing = scores.softmax(-1)
            if cfg.attention_weights == "query_key":
                total = total + mixing @ z
            else:
                total = total + mixing @ (z @ trained[f"{layer}.value"][h]) @ trained[f"{layer}.out"][h]
        x = memory_model.feed_forward(cfg, trained, layer, x + total)
    return F.layer_norm(x[:, -1], x.shape[-1:]) @ frozen["output"]


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("architecture", ["decoder", "entp"])
@pytest.mark.parametrize("shape", [dict(n_heads=3), dict(feed_forward="identity"), dict(attention_weights="query_key")])
def test_equals_plain_attention(n_layers, architecture, shape):
    cfg = MemoryConfig(width=12, head_width=5, symbols=9, architecture=architecture, n_layers=n_layers, **shape)
    trained, frozen = weights(cfg)
    found = memory_model.last_logits(cfg, trained, frozen, tokens(cfg))
    torch.testing.assert_close(found, plain(cfg, trained, frozen, tokens(cfg)), rtol=1e-10, atol=1e-10)


def test_with_one_layer_decoder_and_entp_are_one_function_and_with_two_they_are_not():
    def outputs(n_layers, architecture):
        cfg = MemoryConfig(width=12, symbols=9, n_layers=n_layers, architecture=architecture)
        return memory_model.last_logits(cfg, *weights(cfg), tokens(cfg))

    assert torch.equal(outputs(1, "decoder"), outputs(1, "entp"))
    assert (outputs(2, "decoder") - outputs(2, "entp")).abs().max() > 1e-3


def test_attention_scores_are_a_quadratic_form_of_low_rank():
    # equation 3: Q Kᵀ = X W_A Xᵀ with W_A = W_Q W_Kᵀ, whose rank is the head's width
    cfg = MemoryConfig(width=12, head_width=5)
    trained, _ = weights(cfg)
    query, key = trained["0.query"][0], trained["0.key"][0]
    x = torch.randn(7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close((x @ query) @ (x @ key).T, x @ (query @ key.T) @ x.T)
    assert torch.linalg.matrix_rank(query @ key.T) == 5


@pytest.mark.parametrize("feed_forward", ["trained", "identity", "none"])
@pytest.mark.parametrize("attention_weights", ["all", "query_key"])
def test_parameter_count_is_what_gets_trained(feed_forward, attention_weights):
    cfg = MemoryConfig(
        width=12, head_width=5, n_layers=2, feed_forward=feed_forward, attention_weights=attention_weights
    )
    trained, _ = weights(cfg)
    assert memory_model.parameter_count(cfg) == sum(w.numel() for w in trained.values())


def test_the_512_parameters_of_figure_8():
    assert (
        memory_model.parameter_count(
            MemoryConfig(width=16, head_width=16, feed_forward="none", attention_weights="query_key")
        )
        == memory_model.parameter_count(MemoryConfig(width=16, head_width=8, feed_forward="none"))
        == 512
    )


@pytest.mark.parametrize(
    "values, named",
    [
        (dict(width=0), "width = 0"),
        (dict(length=1), "length = 1"),
        (dict(symbols=1), "symbols = 1"),
        (dict(n_heads=2, attention_weights="query_key"), "n_heads = 2"),
        (dict(feed_forward="frozen"), "feed_forward"),
    ],
)
def test_bad_input(values, named):
    with pytest.raises(ConfigError, match=named):
        MemoryConfig(**values)
