"""A learned vector for each position, added to the token embeddings (GPT-2; the paper's models)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.models.positions.none import Positions


class Learned(Positions):
    """A table of ``max_length`` rows, initialised with the configuration's ``position_std``."""

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.weight = nn.Parameter(torch.empty(cfg.max_length, cfg.width))
        self.table = cfg.max_length

    def embeddings(self, ids: Tensor | slice) -> Tensor:
        return self.weight[ids] if isinstance(ids, slice) else F.embedding(ids, self.weight)
