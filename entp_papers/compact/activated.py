"""The shared model with another function between the two maps of its feed-forward layers."""

from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.models.transformer import Block, Transformer
from entp_lib.validation import one_of
from entp_papers.compact.wirings import ACTIVATIONS, FeedForwardActivation


class ActivatedBlock(Block):
    """x + attention(LN(x)), then x + MLP(LN(x)) with any of ``ACTIVATIONS``."""

    fusible = False  # the fused kernels know GELU only

    def __init__(self, cfg: ModelConfig, activation: str):
        super().__init__(cfg)
        self.activation = FeedForwardActivation(activation)

    def residual(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(attended)
        return x + self.dropout(self.fc_out(self.activation(self.fc_in(self.ln_2(x)))))


def walk_model(cfg: ModelConfig, activation: str, seed: int) -> Transformer:
    """The shared model, whose own GELU is "gelu"; with another of ``ACTIVATIONS`` it starts from the same weights.

    ConfigError for any other name.
    """
    one_of("activation", activation, ACTIVATIONS)
    network = build_model(cfg, seed)
    if activation != "gelu":
        network.blocks = nn.ModuleList(ActivatedBlock(cfg, activation) for _ in range(cfg.n_layers))
        network.init_weights(seed)
    return network
