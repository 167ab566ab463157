"""Count3 by a Transformer whose weights are written down, not trained (Lemma 6.3).

Algorithm 4 with softmax attention and ReLU MLPs alone. A token's state holds named numbers.
Attention over positions does what an MLP could only do with a table: since (z - k)²/2 = z²/2 - (z k
- k²/2), the scores z k - k²/2 look up any function of an integer z at position k = z, and so do k -
u k²/2 for 1/u and f k - b k²/2 for f/b. Widths of selectors come out of the softmax as 1/(w + 1),
because position 0 is made a key that every query selects.

Heads and width do not depend on the length or the values; there are 9 layers, and two for every
base-4 digit of the vocabulary, to take values mod n (for values below n, as Lemma 6.3's footnote
has them, one in place of these).

Letters: T tokens, D width, H heads, K head width, F hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from entp_lib.arguments import check_inputs
from entp_lib.config import ModelConfig
from entp_lib.model import Attention, Block, Transformer
from entp_lib.tasks.counting import next_symbols
from entp_lib.validation import one_of, require

WIDTH = 32
HEADS = 2
GAP = 32.0  # by how much the chosen score exceeds the next: e⁻³² is lost in fp32 when added to 1
BASE = 4  # of the long division

Terms = dict[str, float]  # a linear function of a token's state

# What a token's state holds, by coordinate. `a` starts as the token's value, `x2` as its square
# (for the output).
NAMES = (
    *"a x2 one k k2 first last inverse".split(),
    *(f"step{i}" for i in range(1, BASE)),
    *"a_n z y z2 y2 y_first y_0 hit share w mean floor answer".split(),
)
PLACE = {name: i for i, name in enumerate(NAMES)}


class ReluBlock(Block):
    """A block without LayerNorm and with a ReLU MLP, all weights zero until they are set."""

    def __init__(self, cfg: ModelConfig):
        nn.Module.__init__(self)
        self.ln_1 = nn.Identity()
        self.ln_2 = nn.Identity()
        self.attention = Attention(cfg)
        self.fc_in = nn.Linear(cfg.width, 4 * cfg.width)
        self.fc_out = nn.Linear(4 * cfg.width, cfg.width)
        for p in self.parameters():
            nn.init.zeros_(p)

    def residual(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x + self.fc_out(torch.relu(self.fc_in(x)))


def row_of(terms: Terms) -> Tensor:
    """Return a linear function of a token's state as weights, (D,)."""
    row_D = torch.zeros(WIDTH, dtype=torch.float64)
    for name, weight in terms.items():
        row_D[PLACE[name]] = weight
    return row_D


@dataclass
class Layer:
    """A block whose heads and hidden units are being filled; ``says`` describes it."""

    block: ReluBlock
    says: str
    heads: int = 0
    units: int = 0

    @torch.no_grad()
    def head(self, scores: list[tuple[Terms, Terms]], values: dict[str, Terms]) -> None:
        """Attend with Σ query · key over ``scores``, and add to each named coordinate the mean of
        its value.
        """
        width = WIDTH // HEADS
        qkv = self.block.attention.qkv.weight
        start = self.heads * width
        for slot, (query, key) in enumerate(scores, start):
            qkv[slot] = row_of(query) * width**0.5  # PyTorch divides scores by √K = 4
            qkv[WIDTH + slot] = row_of(key)
        for slot, (target, value) in enumerate(values.items(), start):
            qkv[2 * WIDTH + slot] = row_of(value)
            self.block.attention.out.weight[PLACE[target], slot] = 1.0
        self.heads += 1

    @torch.no_grad()
    def unit(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add relu(source + bias) times each weight of ``target``."""
        self.block.fc_in.weight[self.units] = row_of(source)
        self.block.fc_in.bias[self.units] = bias
        self.block.fc_out.weight[:, self.units] = row_of(target)
        self.units += 1

    def step(self, source: Terms, target: str, bias: float = 0.0) -> None:
        """Add to ``target`` whether the integer ``source + bias`` is at least 0."""
        self.unit(source, {target: 1.0}, bias + 1.0)
        self.unit(source, {target: -1.0}, bias)

    def subtract_n(
        self, times: float, step: str, target: str, most: float, sign: float = -1.0
    ) -> None:
        """Subtract times · n from ``target`` where ``step`` is 1, and clear it; ``most`` bounds
        times · n.
        """
        self.unit({"last": times, step: most}, {target: sign}, times - most)
        self.unit({step: 1.0}, {step: -1.0})


class ConstructedCount3(Transformer):
    """The model; ``says`` has a sentence for each layer. The interface is that of
    ``Transformer``.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.ln_f = nn.Identity()
        self.blocks = nn.ModuleList(ReluBlock(cfg) for _ in range(cfg.n_layers))
        self.says: list[str] = []


@torch.no_grad()
def constructed_count3(
    max_length: int, max_value: int, architecture: str = "entp", reduce: bool = True
) -> ConstructedCount3:
    """Build a Transformer, in fp64, whose most likely next token after a prefix of at most
    ``max_length`` is Count3 of it.

    Values are 0..``max_value``; the vocabulary also holds all answers, which are below
    ``max_length``. Logits are -(v - answer)² up to a constant, from the tied embedding.
    ``architecture="decoder"`` gives the same weights a causal mask, under which they fail.
    ``reduce=False`` leaves out the layers that take values mod n, for prefixes whose values are all
    below their length n (the assumption of Lemma 6.3): ten layers then suffice at any length.
    ConfigError for a length below 1 or a value below 0.
    """
    require(
        max_length >= 1 and max_value >= 0,
        f"max_length = {max_length}, max_value = {max_value}: must be at least 1 and at least 0",
    )
    vocabulary = max(max_value + 1, max_length)
    digits = int(reduce)
    # the digits of the largest quotient: x div n is at most the largest token
    while reduce and BASE**digits < vocabulary:
        digits += 1
    cfg = ModelConfig(architecture, max(1, 2 * digits) + 9, HEADS, WIDTH, vocabulary, max_length)
    model = ConstructedCount3(cfg).double()
    layers = fill(iter(model.blocks), digits, float(max_length))
    model.says = [layer.says for layer in layers]
    # token v is (v, v²); position k is (1, k, k², whether k = 0)
    v, k = (torch.arange(size, dtype=torch.float64) for size in (vocabulary, max_length))
    tokens = {"a": v, "x2": v**2}
    places = {"one": torch.ones_like(k), "k": k, "k2": k**2, "first": (k == 0).double()}
    for weight, columns in ((model.embedding.weight, tokens), (model.positions.weight, places)):
        weight.zero_()
        for name, column in columns.items():
            weight[:, PLACE[name]] = column
    return model.eval()


def fill(blocks, digits: int, longest: float) -> list[Layer]:
    """Write the program into the blocks; the comments give what a token's state holds
    after each.
    """
    layers = []

    def layer(says: str) -> Layer:
        layers.append(Layer(next(blocks), says))
        return layers[-1]

    last_position = [({"one": GAP}, {"k": 1.0})]

    def look_up(z: Terms, sharpness: float) -> list[tuple[Terms, Terms]]:
        """Return scores z k - k²/2, largest at position k = z; a neighbour's is lower by 1/2."""
        query = {name: sharpness * weight for name, weight in z.items()}
        return [(query, {"k": 1.0}), ({"one": -sharpness / 2}, {"k2": 1.0})]

    def read_length(now: Layer) -> None:
        """Set last = n - 1 and inverse = 1/n."""
        now.head(last_position, {"last": {"k": 1.0}})
        now.head([], {"inverse": {"first": 1.0}})

    if not digits:
        read_length(layer("read n from the last position, 1/n from a mean"))
    for digit in reversed(range(digits)):  # a = x mod n by long division
        first = digit == digits - 1
        scale = float(BASE**digit)
        reads = "read n from the last position, 1/n from a mean; " if first else ""
        now = layer(f"{reads}compare a with 1, 2, 3 times {BASE**digit} n")
        if first:
            read_length(now)
        for i in range(1, BASE):
            now.step({"a": 1.0, "last": -i * scale}, f"step{i}", -i * scale)
        now = layer(f"subtract {BASE**digit} n from a for each comparison that held")
        for i in range(1, BASE):
            now.subtract_n(scale, f"step{i}", "a", scale * longest)

    now = layer("read a_n from the last position; compare a + a_n with n, and a with 1")
    now.head(last_position, {"a_n": {"a": 1.0}})
    now.step({"a": 1.0, "a_n": 1.0, "last": -1.0}, "step1", -1.0)
    now.step({"a": 1.0}, "step2", -1.0)

    now = layer("z = (a + a_n) mod n, y = -a mod n")
    now.unit({"a": 1.0}, {"z": 1.0, "y": -1.0})
    now.unit({"a_n": 1.0}, {"z": 1.0})
    now.subtract_n(1.0, "step1", "z", longest)
    now.subtract_n(1.0, "step2", "y", longest, sign=1.0)

    now = layer("look up z² and y² at positions z and y; hide y at position 0")
    now.head(look_up({"z": 1.0}, 2 * GAP), {"z2": {"k2": 1.0}})
    now.head(look_up({"y": 1.0}, 2 * GAP), {"y2": {"k2": 1.0}})
    # y of position 0 only is kept aside
    now.unit({"y": 1.0, "first": 2 * longest}, {"y_first": 1.0}, -2 * longest)
    now.unit({"y": 1.0, "first": 2 * longest}, {"y": -1.0}, -2 * longest)
    now.unit({"y2": 1.0, "first": 2 * longest**2}, {"y2": -1.0}, -2 * longest**2)

    # every query selects position 0 too: share = 1 / (1 + w'), where w' counts the j > 0 with y_j =
    # z
    now = layer(
        "select the positions where y equals z, and position 0; read y at position 0, compare it "
        "with z"
    )
    equal = [
        ({"z": 2 * GAP}, {"y": 1.0}),
        ({"one": -GAP}, {"y2": 1.0}),
        ({"z2": GAP}, {"first": 1.0}),
    ]
    now.head(equal, {"share": {"first": 1.0}})
    now.head([({"one": GAP}, {"first": 1.0})], {"y_0": {"y_first": 1.0}})
    for offset, weight in ((1.0, 1.0), (0.0, -2.0), (-1.0, 1.0)):
        now.unit({"y_0": 1.0, "z": -1.0}, {"hit": weight}, offset)

    sharp = 2 * longest * GAP  # the best score leads by 1 / 2n or more of this
    now = layer(
        "w = 1 / share - 1, looked up at position w, plus whether y equals z at position 0; "
        "compare with n"
    )
    inverse = [({"one": sharp}, {"k": 1.0}), ({"share": -sharp}, {"k": 1.0, "k2": 0.5})]
    now.head(inverse, {"w": {"k": 1.0}})
    now.unit({"hit": 1.0}, {"w": 1.0})
    now.step({"w": 1.0, "hit": 1.0, "last": -1.0}, "step1", -1.0)

    now = layer("subtract n from w where it is n")
    now.subtract_n(1.0, "step1", "w", longest)

    now = layer("mean of w: the count, divided by n")
    now.head([], {"mean": {"w": 1.0}})

    now = layer("look up the whole part of the mean")
    now.head(look_up({"mean": 1.0, "one": -0.5, "inverse": 0.5}, sharp), {"floor": {"k": 1.0}})

    now = layer("look up the answer: the rest of the mean times n")
    ratio = [({"mean": sharp, "floor": -sharp}, {"k": 1.0}), ({"inverse": -sharp / 2}, {"k2": 1.0})]
    now.head(ratio, {"answer": {"k": 1.0}})
    now.unit({"answer": 1.0}, {"a": 2.0})  # the output is read as 2 answer · v - v²
    now.unit({"a": 1.0}, {"a": -1.0})
    now.unit({"x2": 1.0}, {"x2": -1.0})
    now.unit({}, {"x2": -1.0}, 1.0)
    return layers


class LayerTrace(NamedTuple):
    """One layer on one sequence: its attention (H, T, T) and the tokens' states (T, D) after it."""

    attention_HTT: Tensor
    state_TD: Tensor

    def column(self, name: str) -> Tensor:
        """Return one named number of every token of a constructed model, (T,)."""
        return self.state_TD[:, PLACE[name]]


@torch.no_grad()
def run_by_layer(model: Transformer, tokens_T: Tensor) -> list[LayerTrace]:
    """Run every layer of a model on one whole sequence; causal layers under a causal mask.

    A decoder's attention on a prefix is the upper left part of its attention on the sequence;
    ENTP's is different. ConfigError for positions that attention itself takes.
    """
    cfg = model.cfg
    check_inputs(cfg, tokens_T[None], None, None)
    one_of("positions", cfg.positions, ("learned", "none"))
    x = model.embed(tokens_T[None])
    found = []
    hidden = torch.ones(len(tokens_T), len(tokens_T), dtype=torch.bool).triu(1)
    for number, block in enumerate(model.blocks):
        causal = number < cfg.n_layers - cfg.recomputed_layers
        q, k, _ = block.attention.project(block.ln_1(x))
        scores = (q @ k.transpose(-1, -2))[0] / q.shape[-1] ** 0.5
        weights = (scores.masked_fill(hidden, -torch.inf) if causal else scores).softmax(-1)
        x = block(x, causal=causal)
        found.append(LayerTrace(weights, x[0]))
    return found


def before_output(layers: Sequence[LayerTrace]) -> LayerTrace:
    """Return the states before the last layer overwrites a and x², with the answer it finds."""
    state_TD = layers[-2].state_TD.clone()
    state_TD[:, PLACE["answer"]] = layers[-1].column("answer")
    return layers[-2]._replace(state_TD=state_TD)


def hard_cases(length: int, max_value: int) -> Tensor:
    """Return sequences (B, length) that strain the construction.

    They have constants, few residues, extreme counts and the largest values.
    """
    k = torch.arange(length)
    n = length
    values = max_value + 1
    rows = [torch.full((n,), v) for v in sorted({0, 1, max_value // 2, max_value, n % values})]
    rows += [k % 2, k % 3, (k * (n // 2)) % values, k % values, (max_value - k) % values]
    rows += [
        (k == n - 1).long(),
        (k < n - 1).long(),
        torch.where(k < n // 2, 0, max_value),
    ]
    if 2 * n - 1 <= max_value:
        rows += [torch.full((n,), v) for v in (n - 1, n, 2 * n - 1)]
    return torch.stack([row.clamp(0, max_value) for row in rows])


class Answers(NamedTuple):
    """How many answers are wrong, how many were asked, and the smallest margin.

    The margin is the logit of the right answer less the largest other; negative if it is wrong.
    """

    wrong: int
    asked: int
    margin: float


@torch.no_grad()
def wrong_answers(model: Transformer, tokens_BT: Tensor, scored_BT: Tensor) -> Answers:
    """Compare the model's most likely token with Count3 at the scored prefixes."""
    logits_NV = model(tokens_BT, scored_BT).double()
    rows_N, ends_N = scored_BT.nonzero(as_tuple=True)
    right_N = torch.empty_like(rows_N)
    for end in ends_N.unique().tolist():
        here = ends_N == end
        right_N[here] = next_symbols(tokens_BT[rows_N[here], : end + 1], order=3)
    correct_N = logits_NV.gather(1, right_N[:, None])[:, 0]
    others_NV = logits_NV.scatter(1, right_N[:, None], -torch.inf)
    margins_N = correct_N - others_NV.max(1).values
    margins_N = torch.where(margins_N.isnan(), -torch.inf, margins_N)
    wrong = int((margins_N <= 0).sum())  # a tie is no answer
    return Answers(wrong, len(rows_N), float(margins_N.min()) if len(rows_N) else 0.0)
