"""Relative positions are no substitute for the inductive mask (appendix C.3): indices and receptive fields.

States of T tokens each, # included, behind a question. Tokens and states count from 1 as in the paper, places in the
text from 0.

Letters: N tokens of a text, T tokens of a state, D window, L layers.
"""

import numpy as np

from entp_lib.experiments.studies import Study, at_least, columns
from entp_lib.validation import require


def states_seen(tokens_per_state: int, states: int, token: int) -> dict[int, list[int]]:
    """Tokens that a token of the last state sees, where a rule of distances alone lets states see the one before.

    By state, the numbers of its tokens that are seen.
    """
    T = tokens_per_state
    require(1 <= token <= T, f"token = {token}: must be 1 to {T}")
    # at these distances a token of the second state must see itself, its own state and the one before
    distances = {query - key for query in range(T, 2 * T) for key in range(query + 1)}
    query = (states - 1) * T + token - 1
    seen = {s: [t for t in range(1, T + 1) if query - ((s - 1) * T + t - 1) in distances] for s in range(1, states + 1)}
    return {state: keys for state, keys in seen.items() if keys}


def window_mask(tokens: int, window: int) -> np.ndarray:
    """Boolean (N, N): a token sees itself and the ``window`` tokens before it."""
    back = np.arange(tokens)[:, None] - np.arange(tokens)[None]
    return (back >= 0) & (back <= window)


def inductive_mask(question: int, tokens_per_state: int, states: int) -> np.ndarray:
    """Boolean (N, N) for the text with duplicated states, causal: its own group and the question."""
    groups = [0] * question
    for state in range(1, states + 1):
        groups += [state] * tokens_per_state * min(state, 2)
    group_N = np.array(groups)
    seen_NN = (group_N[:, None] == group_N[None]) | (group_N[None] == 0)
    return seen_NN & np.tri(len(groups), dtype=bool)


def receptive_field(mask_NN: np.ndarray, layers: int) -> np.ndarray:
    """Boolean (N, N): which tokens reach which through so many layers of attention and their residual streams."""
    at_least(1, layers=layers)
    step = (mask_NN | np.eye(len(mask_NN), dtype=bool)).astype(np.int64)
    field = step
    for _ in range(layers - 1):
        field = (field @ step > 0).astype(np.int64)
    return field > 0


def relative_study(most_tokens: int, states: int, layers: int) -> Study:
    """The three obstacles for states of 2 to ``most_tokens`` tokens.

    A row per T: the distance to the question at the last state, how far a window of T reaches through the layers, and
    how many tokens of the state before last the first token of a state sees; each also for the inductive text.
    """
    at_least(2, most_tokens=most_tokens)
    rows, grows = [], True
    for tokens in range(2, most_tokens + 1):
        last = receptive_field(window_mask(tokens * (states + layers), tokens), layers)[-1]
        reached = receptive_field(inductive_mask(1, tokens, 3), layers)
        third = 1 + tokens * 3  # where the group of the third state begins: its question's one token, then 1 + 2 states
        # from the first token of each state back to the last of the question
        distances = [(state - 1) * tokens + 1 for state in range(1, states + 1)]
        grows = grows and distances == sorted(set(distances))
        rows.append(
            {
                "tokens": tokens,
                "question_distance": distances[-1],
                "inductive_distance": min(states - 1, 1) * tokens + 1,  # positions are re-indexed
                "reach": len(last) - 1 - int(last.argmax()),
                "leaked": len(states_seen(tokens, states, 1).get(states - 2, [])),
                "inductive_leaked": int(reached[third:, 1:third].sum()),
            }
        )
    metrics = {
        "grows": grows,
        "reach_is_window_times_layers": all(row["reach"] == row["tokens"] * layers for row in rows),
        "leaks_all_but_one": all(row["leaked"] == row["tokens"] - 1 for row in rows),
        "inductive_leaks": sum(row["inductive_leaked"] for row in rows),
        "layers": layers,
    }
    return metrics, columns(rows)
