"""Beam search, for the primer's section on choosing a token.

Letters: T tokens, W beams, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.arguments import INTEGERS, check_tensor
from entp_lib.decoding import IncrementalDecoder, check_prompt, eval_mode
from entp_lib.model import Transformer


@torch.no_grad()
def beam_search(
    model: Transformer, prompt_T: Tensor, new_tokens: int, beams: int, use_cache: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the ``beams`` best continuations found of one prompt (T,), best first.

    They are sequences (W, T + new_tokens) and their summed log-probabilities (W,). One beam is
    greedy search; with V^(new_tokens - 1) beams or more the search is exhaustive. Fewer are
    returned if fewer exist. ValueError as in ``generate``, and if the prompt is not one row.
    """
    check_tensor("prompt", prompt_T, INTEGERS, (None,), "token ids of one prompt, torch.int64,")
    read = check_prompt(model, prompt_T[None], new_tokens)
    if beams < 1:
        raise ValueError(f"beams = {beams}: must be at least 1")
    with eval_mode(model):
        decoder = IncrementalDecoder(model, prompt_T[None], read, use_cache)
        scores_W = torch.zeros(1, dtype=torch.float64, device=prompt_T.device)
        for _ in range(new_tokens):
            candidates_WV = scores_W[:, None] + F.log_softmax(decoder.logits().double(), -1)
            vocab = candidates_WV.shape[1]
            scores_W, chosen = candidates_WV.flatten().topk(min(beams, candidates_WV.numel()))
            decoder.append(chosen % vocab, chosen // vocab)
    return decoder.tokens_BT, scores_W
