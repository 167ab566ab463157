"""Stored answers and attention maps, which the site and notebook 90 show, against the records."""

import pytest

from entp_papers.entp import playing


def test_stored_answers_agree_with_the_records():
    """The share of right answers over all held-out prompts is near the record's, which is over other draws."""
    table = playing.stored("count3")
    runs = {f"{r.experiment}/{r.id}": r for r in playing.runs()}
    unseen = [i for i, c in enumerate(table["held_out"]) if c == "1"]
    x = playing.torch.tensor([[int(d) for d in f"{i:0{table['seed_length']}d}"] for i in unseen])
    while x.shape[1] <= table["length"]:
        x = playing.torch.cat([x, playing.next_symbols(x, 3)[:, None]], 1)
    for model in table["models"]:
        shares = []
        for n in range(table["first_scored"], table["length"] + 1):
            said = playing.torch.tensor([int(model["answers"][str(n)][i]) for i in unseen])
            shares.append((said == x[:, n]).double().mean().item())
        assert sum(shares) / len(shares) == pytest.approx(model["token_accuracy"], abs=0.01)
        if model["run"] in runs:
            assert model["token_accuracy"] == runs[model["run"]].metrics["token_accuracy"]


def test_stored_attention_is_of_every_prefix_and_causal_where_it_must_be():
    table = playing.stored("attention")
    for model in table["models"]:
        assert len(model["maps"]) == len(table["tokens"])
        for n, layers in enumerate(model["maps"], 1):
            for heads in layers:
                for rows in heads:
                    assert len(rows) == n and all(abs(sum(row) - 100) <= n for row in rows)
                    if model["name"] == "decoder":
                        assert not any(v for i, row in enumerate(rows) for v in row[i + 1 :])
