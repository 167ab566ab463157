"""Scratchpads drawn with the same random numbers are the same text in every exact way, and not with a naive cache."""

import pandas as pd
import torch

from entp_papers.scratchpad.agreement import EXACT_WAYS, apart, drawn, writing_study
from entp_papers.scratchpad.equivalence import random_example, random_model
from entp_papers.scratchpad.writing import Written


def test_every_exact_way_draws_the_same_text():
    metrics, table = writing_study(["learned", "none"], prompts=8, longest=5, states=5, n_layers=2)
    rows = pd.DataFrame(table)
    naive = rows["way"] == "naive"
    assert rows.loc[~naive, "differing_texts"].eq(0).all() and (rows.loc[~naive, "largest_difference"] < 1e-9).all()
    assert (rows.loc[naive, "largest_difference"] > 1e-3).all()
    assert metrics["texts"] == 16 and metrics["texts_beyond_two_states"] > 4 and metrics["most_states"] == 5
    assert set(rows["way"]) == {*EXACT_WAYS[1:], "naive"}


def test_texts_vary():
    question = random_example(torch.Generator().manual_seed(0), 1).question
    model = random_model("decoder", "learned", 0)
    texts = {drawn(model, question, "trimmed", 5, 5, seed).states for seed in range(8)}
    assert len(texts) > 4 and len({token for text in texts for state in text for token in state}) > 3


def test_logits_are_compared_up_to_the_first_difference():
    """Behind it the texts go apart, and so do logits that are right for each."""
    logits_TV = torch.zeros(4, 3).double()
    other_TV = logits_TV.clone()
    other_TV[1] += 0.25  # before the second token, which differs
    other_TV[2:] += 9.0
    one = Written(((3, 4), (5,)), "end", logits_TV=logits_TV)
    assert apart(one, Written(((3, 5), (5,)), "end", logits_TV=other_TV)) == (True, 0.25)
    assert apart(one, one) == (False, 0.0)
    assert apart(one, Written(((3, 4), (5,)), "too many states", logits_TV=logits_TV))[0]
