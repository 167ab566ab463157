"""Count3 and Count2 as text for a causal language model: the task, and the model behind the library's loop.

The loss is on the answer alone (appendix C.1), on all of its tokens; scores are on the numbers that the function
generated. What all prompts of a batch begin with, Table 5's code, is run once for the whole batch: in a causal model
its keys and values do not depend on what follows, so that values and gradients are the same (``test_prompted``).

Letters: B batch, T tokens, S shared tokens, R the others, N wanted positions, V vocabulary.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.models.entp import Part
from entp_lib.tasks import Batch, Counting, Task
from entp_lib.validation import require
from entp_papers.entp.pretrained.prompts import as_list, examples, judged, question, tally

IGNORED = 0  # what stands where no target is looked at


@dataclass(frozen=True)
class PromptTask(Task):
    """``counting`` as Table 5's prompts, with or without its code, in the tokens of ``tokenizer``.

    Numbers have one digit, so that all prompts are equally long and a number is a token. ``answers``: how many answers
    the model writes in the end. ConfigError where a number would be more than a token.
    """

    counting: Counting
    tokenizer: Any = field(compare=False)
    vocab_size: int
    with_code: bool = True
    answers: int = 16

    def __post_init__(self):
        largest = max(self.counting.symbols - 1, self.counting.length)
        require(largest <= 10, f"symbols and length: numbers up to {largest - 1} have more digits than one")
        digits = [self.ids(str(n)) for n in range(10)]
        require(all(len(x) == 1 for x in digits), "the tokenizer makes more than one token of a digit")

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @cached_property
    def digits(self) -> Tensor:
        """The token of each digit, (10,)."""
        return torch.tensor([self.ids(str(n))[0] for n in range(10)])

    @property
    def length(self) -> int:
        return self.lengths[0] + self.lengths[1] - 1

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """Tokens of every prompt and of every answer."""
        prompt, answer = self.texts([[0] * (self.counting.length + 1)])[0]
        return len(self.ids(prompt)), len(self.answer_ids(answer))

    def texts(self, sequences) -> list[tuple[str, str]]:
        """Prompt and answer of each whole sequence."""
        seed = self.counting.seed_length
        return [(question(x[:seed], len(x) - seed, self.counting.order, self.with_code), as_list(x)) for x in sequences]

    def answer_ids(self, text: str) -> list[int]:
        """The answer's tokens and the end of the text."""
        return [*self.ids(text), self.tokenizer.eos_token_id]

    def sequences(self, generator: torch.Generator, size: int, evaluating: bool = False) -> list[list[int]]:
        return self.counting.sequences(generator, size, evaluating).tolist()

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        """Whole texts; wanted are the answer's tokens, in evaluation only the numbers that the function generated."""
        rows = [self.ids(p) + self.answer_ids(a) for p, a in self.texts(self.sequences(generator, size, evaluating))]
        require(len({len(row) for row in rows}) == 1, "prompts differ in their tokens: numbers must have one digit")
        ids_BT = torch.tensor(rows, device=generator.device)
        inputs_BT, targets_BT = ids_BT[:, :-1], ids_BT[:, 1:]
        wanted_BT = torch.zeros_like(inputs_BT, dtype=torch.bool)
        wanted_BT[:, self.lengths[0] - 1 :] = True
        if evaluating:
            wanted_BT &= torch.isin(targets_BT, self.digits.to(targets_BT))
            first = self.counting.seed_length + 1
            wanted_BT &= wanted_BT.cumsum(1) >= first
        return Batch(inputs_BT, targets_BT, wanted_BT)

    def samples(self, model: nn.Module, generator: torch.Generator) -> dict[str, Any]:
        """Answers as the model writes them: shares by verdict, and a few of each kind."""
        sequences = self.sequences(generator, self.answers, evaluating=True)
        prompts = [prompt for prompt, _ in self.texts(sequences)]
        texts = write(model.language_model, self.tokenizer, prompts, self.lengths[1])
        found = [judged(t, x, self.counting.seed_length) for t, x in zip(texts, sequences, strict=True)]
        return {"generated": tally(found), "examples": examples(found)}


@torch.no_grad()
def write(language_model: nn.Module, tokenizer, prompts: list[str], most: int) -> list[str]:
    """What the model writes after each prompt, greedily, ``most`` tokens or to its end; prompts padded on the left."""
    rows = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in prompts]
    longest = max(map(len, rows))
    end = tokenizer.eos_token_id
    ids_BT = torch.tensor([[end] * (longest - len(row)) + row for row in rows])
    mask_BT = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    was_training = language_model.training
    language_model.eval()
    found_BT = language_model.generate(
        input_ids=ids_BT,
        attention_mask=mask_BT,
        max_new_tokens=most,
        do_sample=False,
        pad_token_id=end,
        eos_token_id=end,
        temperature=None,
        top_p=None,
        top_k=None,
    )
    language_model.train(was_training)
    return tokenizer.batch_decode(found_BT[:, longest:], skip_special_tokens=True)


class Prompted(nn.Module):
    """A causal language model as ``model(inputs, wanted) -> logits``, the shared beginning of a batch run once."""

    def __init__(self, language_model: nn.Module):
        super().__init__()
        self.language_model = language_model

    def plan(self, wanted_BT: Tensor) -> list[Part]:
        """One part: a causal model runs once."""
        return [Part(wanted_BT)]

    def forward(self, inputs_BT: Tensor, wanted: Tensor | Part, prompt_lengths_B: Tensor | None = None) -> Tensor:
        """Logits (N, V) after the wanted positions; the vocabulary is looked at there alone."""
        wanted_BT = wanted.wanted_BT if isinstance(wanted, Part) else wanted
        base = self.language_model.get_base_model() if hasattr(self.language_model, "peft_config") else None
        whole = base or self.language_model
        body, head = whole.get_decoder(), whole.get_output_embeddings()
        first = int(wanted_BT.any(0).nonzero()[0])
        shared = min(shared_tokens(inputs_BT), first)
        if shared < 2:
            states_BRD, wanted_BR = body(input_ids=inputs_BT, use_cache=False).last_hidden_state, wanted_BT
        else:
            cache = body(input_ids=inputs_BT[:1, :shared], use_cache=True).past_key_values
            for layer in cache.layers:
                layer.keys, layer.values = (x.expand(len(inputs_BT), -1, -1, -1) for x in (layer.keys, layer.values))
            rest_BR, wanted_BR = inputs_BT[:, shared:], wanted_BT[:, shared:]
            states_BRD = body(input_ids=rest_BR, past_key_values=cache, use_cache=True).last_hidden_state
        return head(states_BRD[wanted_BR])


def shared_tokens(inputs_BT: Tensor) -> int:
    """How many tokens all rows begin with; 0 for a single row, which shares with none."""
    if len(inputs_BT) < 2:
        return 0
    same_T = (inputs_BT == inputs_BT[:1]).all(0)
    return int(same_T.long().cumprod(0).sum())
