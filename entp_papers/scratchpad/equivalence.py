"""Two ways of training, one loss (appendix C.2): chunks and duplicated states, with and without each ingredient."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.tasks.base import Batch
from entp_papers.scratchpad.format import Example, Scratchpad
from entp_papers.scratchpad.rows import INGREDIENTS, Row, batch_of, chunks, duplicate_states

PAD = Scratchpad(start=0, delimiter=1, end=2)
VOCABULARY = 9


def loss_and_gradients(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of losses over the counted tokens, in nats, and its gradient by every parameter (zeros where none)."""
    model.zero_grad(set_to_none=True)
    logits_NV = model(batch.inputs_BT, batch.wanted_BT, **batch.relations())
    loss = nn.functional.cross_entropy(logits_NV, batch.targets_N, reduction="sum")
    loss.backward()
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    return loss.detach(), gradients


def differences(
    model: nn.Module, pad: Scratchpad, examples: Sequence[Example], without: Sequence[str] = (), extra: int = 0
) -> dict[str, float]:
    """How far the two ways are apart in the sum of losses, in nats, and in the worst entry of any gradient.

    Beside them the tokens that each reads. ``extra`` columns of filler are added to the rows of both.
    """
    pieces = [row for example in examples for row in chunks(pad, example)]
    whole = [duplicate_states(pad, example, without) for example in examples]
    results = []
    for rows in (pieces, whole):
        length = max(len(row.tokens) for row in rows) - 1 + extra
        results.append(loss_and_gradients(model, batch_of(rows, pad.end, length)))
    (one, gradients), (two, others) = results
    return {
        "loss": float((one - two).abs()),
        "gradient": max(float((gradients[n] - others[n]).abs().max()) for n in gradients),
        "tokens_of_chunks": sum(len(row.tokens) - 1 for row in pieces),
        "tokens_of_duplicates": sum(len(row.tokens) - 1 for row in whole),
    }


def printed_chunks(pad: Scratchpad, example: Example) -> list[Row]:
    """The chunks as our source prints them, Qs[1] and Q#s[i]#s[i+1]#: a # behind the question, none behind s[1]."""
    first, *others = chunks(pad, example)
    rows = [Row(*(part[:-1] for part in (first.tokens, first.groups, first.positions, first.counted)))]
    start = len(pad.memory(example))
    for row in others:
        tokens = (*row.tokens[:start], pad.delimiter, *row.tokens[start:])
        counted = (*row.counted[:start], False, *row.counted[start:])
        rows.append(Row(tokens, (0,) * len(tokens), tuple(range(len(tokens))), counted))
    return rows


def as_printed(scheme: str, texts: int, states: int) -> list[dict[str, float | int | str]]:
    """Chunks as meant and as printed beside duplicated states: tokens with a loss, the largest difference of losses."""
    found: dict[str, list[tuple[int, float]]] = {"as meant": [], "as printed": []}
    whole = 0
    for seed in range(texts):
        example = random_example(torch.Generator().manual_seed(seed), states)
        model, row = random_model("decoder", scheme, seed), duplicate_states(PAD, example)
        whole += sum(row.counted)
        expected, _ = loss_and_gradients(model, batch_of([row]))
        for name, rows in (("as meant", chunks(PAD, example)), ("as printed", printed_chunks(PAD, example))):
            loss, _ = loss_and_gradients(model, batch_of(rows, PAD.end))
            found[name].append((sum(sum(r.counted) for r in rows), float((loss - expected).abs())))
    return [
        {
            "chunks": name,
            "tokens_with_a_loss": sum(count for count, _ in pairs),
            "of": whole,
            "loss": max(gap for _, gap in pairs),
        }
        for name, pairs in found.items()
    ]


def random_example(generator: torch.Generator, states: int, longest: int = 4) -> Example:
    """A question and so many states of 1 to ``longest`` random tokens that are no delimiters of ``PAD``."""

    def some() -> tuple[int, ...]:
        length = int(torch.randint(1, longest + 1, (), generator=generator))
        return tuple(torch.randint(3, VOCABULARY, (length,), generator=generator).tolist())

    return Example(some(), tuple(some() for _ in range(states)))


@torch.no_grad()
def random_model(architecture: str, positions: str, seed: int, max_length: int = 128, n_layers: int = 2) -> nn.Module:
    """A small model in double precision with weights large enough for attention and order to matter."""
    cfg = ModelConfig(architecture, n_layers, 2, 16, VOCABULARY, max_length, positions=positions)
    model = build_model(cfg, seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.mul_(8) if p.dim() > 1 else p.add_(torch.randn(p.shape, generator=generator).to(p), alpha=0.3)
    return model


def equivalence_study(
    schemes: Sequence[str], architectures: Sequence[str], most_states: int, examples: int, batches: int
) -> tuple[dict[str, Any], dict[str, list]]:
    """The largest difference over random batches, with all ingredients and without each; in a control the smallest.

    A row per architecture, scheme and ingredient left out ("" for none). Every batch has examples of 2 to
    ``most_states`` states, since one state is never duplicated, and filler.
    """
    table: dict[str, list] = {name: [] for name in ("architecture", "scheme", "without", "loss", "gradient")}
    for architecture in architectures:
        for scheme in schemes:
            for missing in ("", *INGREDIENTS):
                found = []
                for seed in range(batches):
                    generator = torch.Generator().manual_seed(seed)
                    counts = torch.randint(2, most_states + 1, (examples,), generator=generator).tolist()
                    texts = [random_example(generator, count) for count in counts]
                    model = random_model(architecture, scheme, seed)
                    found.append(differences(model, PAD, texts, (missing,) if missing else (), extra=seed % 3))
                pick = min if missing else max
                values = (architecture, scheme, missing, *(pick(f[k] for f in found) for k in ("loss", "gradient")))
                for name, value in zip(table, values, strict=True):
                    table[name].append(value)
    decoder = [i for i, name in enumerate(table["architecture"]) if name == "decoder"]
    equal = [i for i in decoder if not table["without"][i]]
    # without positions there is nothing to re-index
    idle = [i for i in decoder if (table["scheme"][i], table["without"][i]) == ("none", "positions")]
    broken = [i for i in decoder if i not in equal + idle]
    metrics = {
        "largest_loss": max((table["loss"][i] for i in equal), default=None),
        "largest_gradient": max((table["gradient"][i] for i in equal), default=None),
        "smallest_control": min((table["loss"][i] for i in broken), default=None),
        "batches": batches,
    }
    return metrics, table
