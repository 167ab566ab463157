"""The architectures: which layers see a whole prefix, and how figures show each.

All have the same weights and differ in which tokens see which. A full layer sees the whole prefix
and runs again on every prefix; a causal layer runs once over the sequence. Models, training, costs
and figures use this table alone, so that a new kind of stack starts with an entry here.
"""

from dataclasses import dataclass

POSITIONS = ("alibi", "learned", "none", "rotary")  # names of ``entp_lib.positions``


@dataclass(frozen=True)
class Architecture:
    """One kind of stack.

    ``causal_layers``: how many layers, from the first on, are causal; None for all of them.
    ``any_depth``: whether a configuration may set the number of full layers instead.
    ``open_prompt``: whether the tokens of the prompt all see each other. ``colour`` and ``label``
    are used in figures.
    """

    causal_layers: int | None
    colour: str
    label: str
    open_prompt: bool = False
    any_depth: bool = False

    def full_layers(self, n_layers: int) -> int:
        """Return how many of the last of ``n_layers`` layers are full by default."""
        if self.causal_layers is None:
            return 0
        return max(0, n_layers - self.causal_layers)


# Colours are Okabe and Ito's, which colour-blind readers can tell apart.
ARCHITECTURES = {
    "decoder": Architecture(None, "#0072B2", "decoder"),
    "prefix_decoder": Architecture(None, "#E69F00", "prefix decoder", open_prompt=True),
    "entp": Architecture(0, "#D55E00", "ENTP"),
    "hybrid": Architecture(1, "#009E73", "hybrid", any_depth=True),
}
