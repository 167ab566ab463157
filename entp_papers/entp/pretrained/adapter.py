"""Any transformers body as ``model(inputs, scored) -> logits``, as ENTP or as a causal decoder.

``entp``: full attention within each scored prefix, which is run by itself and read at its last
position. An encoder attends like this already; a decoder is given an explicit mask of zeros, which
lifts its own. ``decoder``: one pass over the whole sequence; an encoder is given a causal mask.
Prefixes are run in groups of one length; ``plan`` splits a step into micro-batches as for the
models of this library.

Letters: B batch, T tokens, P prefixes of a group, N scored positions, D width, V symbols of the
task.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from entp_lab.studies import seeded
from entp_lib import entp
from entp_lib.entp import MicroBatch
from entp_lib.validation import ConfigError, one_of, require


class Adapted(nn.Module):
    """A transformers body that reads a task's symbols and answers with their logits.

    ``tokens``: the model's token for each symbol; their embeddings are copied, so that the rest of
    the vocabulary takes no memory or optimiser state. None: fresh embeddings, drawn from ``seed``
    with the standard deviation of the model's own. ``output_VD``: the rows that the read-out starts
    from, such as those of a language head; None draws them, too. The body's own token embeddings
    are no longer its parameters. ConfigError if the body's attention cannot be made that of
    ``architecture``.
    """

    def __init__(
        self,
        body: nn.Module,
        architecture: str,
        vocab_size: int,
        *,
        tokens=None,
        output_VD=None,
        seed: int = 0,
    ):
        super().__init__()
        one_of("architecture", architecture, ("entp", "decoder"))
        require(
            tokens is None or len(tokens) == vocab_size,
            f"tokens: {vocab_size} symbols need one token each",
        )
        own_VD = body.get_input_embeddings().weight.detach()
        generator = seeded(seed)
        width = own_VD.shape[1]
        state_width = getattr(body.config, "hidden_size", width)  # wider than embeddings in some

        def drawn(std: float, width: int) -> Tensor:
            return torch.randn(vocab_size, width, generator=generator).to(own_VD) * std

        start_VD = drawn(float(own_VD[1:].std()), width) if tokens is None else own_VD[list(tokens)]
        self.read_in = nn.Embedding.from_pretrained(start_VD, freeze=False)
        self.read_out = nn.Linear(state_width, vocab_size, bias=False).to(own_VD)
        with torch.no_grad():
            self.read_out.weight.copy_(drawn(0.02, state_width) if output_VD is None else output_VD)
        self.architecture = architecture
        self.body = body
        self.token_budget = 1024
        body.set_input_embeddings(nn.Embedding(1, width).to(own_VD).requires_grad_(False))
        self.is_causal = not sees_the_future(body, width, lambda x_BTD: None)
        causal = architecture == "decoder"
        if causal != self.is_causal:
            try:
                fits = sees_the_future(body, width, causal_mask if causal else no_mask) != causal
            except (ValueError, RuntimeError, TypeError, IndexError):
                fits = False
            require(
                fits,
                f"architecture = {architecture!r}: the attention of a {body.config.model_type!r} "
                "cannot be made that (a mask changes nothing, or not all, as in recurrent models); "
                "use one whose layers attend, such as 'llama' or a BERT",
            )

    def forward(
        self, inputs_BT: Tensor, scored: Tensor | MicroBatch, prompt_lengths_B: Tensor | None = None
    ) -> Tensor:
        """Return logits (N, V) after the scored positions, row-major; ignore prompt lengths."""
        part = scored if isinstance(scored, MicroBatch) else MicroBatch(scored)
        x_BTD = self.read_in(inputs_BT)
        if self.architecture == "decoder":
            mask = None if self.is_causal else causal_mask(x_BTD)
            return self.read_out(hidden(self.body, x_BTD, mask)[part.scored_BT])
        parts = [part] if part.groups is not None else self.plan(part.scored_BT)
        states = [self.at_end(x_BTD[rows, :length]) for p in parts for rows, _, length in p.groups]
        order = torch.cat([p.order_P for p in parts]).argsort()
        return self.read_out(torch.cat(states)[order])

    def plan(self, scored_BT: Tensor) -> list[MicroBatch]:
        """Split the scored positions into micro-batches of about ``token_budget`` tokens.

        Their losses add up to the loss of the whole batch.
        """
        if self.architecture == "decoder":
            return [MicroBatch(scored_BT)]
        return entp.plan(scored_BT, max(self.token_budget, scored_BT.shape[1]))

    def at_end(self, x_PTD: Tensor) -> Tensor:
        """Return states (P, D) at the last token of prefixes of one length, with full attention."""
        return hidden(self.body, x_PTD, no_mask(x_PTD) if self.is_causal else None)[:, -1]


def causal_mask(x_BTD: Tensor) -> Tensor:
    """Return a mask (B, 1, T, T): 0 where a token may look, the smallest number elsewhere."""
    batch, tokens, _ = x_BTD.shape
    mask_TT = x_BTD.new_full((tokens, tokens), torch.finfo(x_BTD.dtype).min).triu(1)
    return mask_TT.expand(batch, 1, tokens, tokens)


def no_mask(x_BTD: Tensor) -> Tensor:
    """Return a mask (B, 1, T, T) that hides nothing, in place of a body's own."""
    return torch.zeros_like(causal_mask(x_BTD))


def hidden(body: nn.Module, x_BTD: Tensor, mask: Tensor | None) -> Tensor:
    """Return a body's last hidden states (B, T, D); ``mask`` (B, 1, T, T) is added to the
    scores.
    """
    # Nothing would read a cache.
    cacheless = {"use_cache": False} if "use_cache" in vars(body.config) else {}
    return body(inputs_embeds=x_BTD, attention_mask=mask, **cacheless).last_hidden_state


@torch.no_grad()
def sees_the_future(body: nn.Module, width: int, mask: Callable[[Tensor], Tensor | None]) -> bool:
    """Return whether the first token's output depends on later tokens.

    ``mask``: from embeddings to the mask, or None for the body's own. Dropout is off.
    """
    before = body.training
    body.eval()
    x_BTD = torch.randn(2, 4, width, generator=seeded(0)).to(next(body.parameters()))
    x_BTD[1, 0] = x_BTD[0, 0]
    one_D, other_D = (hidden(body, row[None], mask(row[None]))[0, 0] for row in x_BTD)
    body.train(before)
    return not torch.equal(one_D, other_D)


def symbol_tokens(tokenizer, symbols: int) -> list[int]:
    """Return the model's token for each of the numbers 0 to ``symbols`` - 1. ConfigError where the
    tokenizer splits one.
    """
    found = []
    for number in range(symbols):
        ids = tokenizer(str(number), add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            parts = ", ".join(map(repr, tokenizer.convert_ids_to_tokens(ids)))
            raise ConfigError(
                f"symbols = {symbols}: the tokenizer splits {number} into {len(ids)} tokens "
                f"({parts}); use at most {number} symbols, or read_in = 'fresh'"
            )
        found.append(ids[0])
    return found
