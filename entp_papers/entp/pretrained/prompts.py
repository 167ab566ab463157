"""Count3 and Count2 as text: Table 5's prompt and how answers are read, and a language model in the
library's loop.

A prompt is the code of Algorithm 2, a list of seeds and a question. Our text of the paper lacks
three lines of the printed code (the length, the counter's start and its step), without which it
does not run; they are put back here.

The loss is only on the answer (appendix C.1), on all of its tokens; scores are on the numbers that
the function generated. The beginning that all prompts of a batch share, Table 5's code, is run once
for the whole batch: in a causal model its keys and values do not depend on what follows, so that
values and gradients are the same (``test_prompts``).

Letters: B batch, T tokens, S shared tokens, R the others, N scored positions, V vocabulary.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from entp_lab.configs import Json
from entp_lib.entp import MicroBatch
from entp_lib.tasks import Batch, Counting, Task
from entp_lib.validation import require

CODE = {  # by the order of the function
    3: """def f(x: list[int]) -> int:
    n = len(x)
    count = 0
    for i in range(n):
        for j in range(n):
            if (x[i] + x[j] + x[-1]) % n == 0:
                count += 1
    return count % n
""",
    2: """def f(x: list[int]) -> int:
    n = len(x)
    count = 0
    for i in range(n):
        if (x[i] + x[-1]) % n == 0:
            count += 1
    return count % n
""",
}


def question(seed: Sequence[int], more: int, order: int, with_code: bool) -> str:
    """Write the prompt for ``more`` numbers after ``seed``: Table 5's, or only its list and a
    question without the code.
    """
    numbers = as_list(seed)
    if with_code:
        loop = f"x = {numbers}\nfor _ in range({more}):\n    x.append(f(x))\n"
        return f"{CODE[order]}{loop}What is the output of this code ?\nOutput: "
    return f"x = {numbers}\nWhat are the next {more} numbers ?\nOutput: "


def as_list(numbers: Sequence[int]) -> str:
    """Return the numbers as Python prints a list: the answer that is asked for."""
    return str([int(x) for x in numbers])


def read_answer(text: str, length: int) -> list[int] | None:
    """Read the list of ``length`` whole numbers that ``text`` begins with, whatever follows; None
    where there is none.
    """
    found = re.match(r"\s*(\[[^\[\]]*\])", text)
    try:
        numbers = ast.literal_eval(found[1]) if found else []
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return numbers if len(numbers) == length and all(type(x) is int for x in numbers) else None


def judged(text: str, sequence: Sequence[int], seed_length: int) -> Json:
    """Judge an answer by the whole sequence, with the seed: "right", "wrong" or "invalid".

    ``numbers_right`` counts right numbers after the seed, of ``numbers``; 0 for an invalid answer.
    """
    right = [int(x) for x in sequence]
    found = read_answer(text, len(right))
    verdict = "invalid" if found is None else "right" if found == right else "wrong"
    hits = sum(
        a == b for a, b in zip((found or [])[seed_length:], right[seed_length:], strict=False)
    )
    shown = {
        "asked": as_list(right[:seed_length]),
        "right": as_list(right),
        "answered": text[:120],
        "verdict": verdict,
    }
    return {
        "shown": shown,
        "verdict": verdict,
        "numbers_right": hits,
        "numbers": len(right) - seed_length,
    }


def tally(answers: Sequence[Json]) -> Json:
    """Return the shares of ``judged`` answers by verdict, and the share of single numbers right.

    An invalid answer has no number right.
    """
    count = Counter(a["verdict"] for a in answers)
    numbers_right = sum(a["numbers_right"] for a in answers) / sum(a["numbers"] for a in answers)
    return {
        "answers": len(answers),
        "exact_match": count["right"] / len(answers),
        "invalid": count["invalid"] / len(answers),
        "numbers_right": numbers_right,
    }


def examples(answers: Sequence[Json], most: int = 5) -> Json:
    """Return at most ``most`` right answers and as many that are not, for people to read."""
    kinds = {"right": ["right"], "wrong": ["wrong", "invalid"]}
    return {
        kind: [a["shown"] for a in answers if a["verdict"] in verdicts][:most]
        for kind, verdicts in kinds.items()
    }


@dataclass(frozen=True)
class PromptTask(Task):
    """``counting`` as Table 5's prompts, with or without its code, in the tokens of ``tokenizer``.

    Numbers have one digit, so that all prompts are equally long and a number is a token.
    ``answers``: how many answers the model writes in the end. ConfigError where a number would be
    more than a token.
    """

    counting: Counting
    tokenizer: Any = field(compare=False)
    vocab_size: int
    with_code: bool = True
    answers: int = 16

    def __post_init__(self):
        largest = max(self.counting.symbols, self.counting.length) - 1
        require(
            largest <= 9, f"symbols and length: numbers up to {largest} have more digits than one"
        )
        digits = [self.ids(str(n)) for n in range(10)]
        require(
            all(len(x) == 1 for x in digits), "the tokenizer makes more than one token of a digit"
        )
        listed = self.ids(as_list(range(10)))
        require(
            all(listed.count(x[0]) == 1 for x in digits),
            "the tokenizer has other tokens for the numbers of a list than for digits",
        )

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """Return the lengths in tokens of a prompt, and of an answer with the end of the text."""
        prompt, answer = self.texts([[0] * (self.counting.length + 1)])[0]
        return len(self.ids(prompt)), len(self.ids(answer)) + 1

    @property
    def length(self) -> int:
        return sum(self.lengths) - 1

    def texts(self, sequences) -> list[tuple[str, str]]:
        """Return prompt and answer for each whole sequence."""
        seed = self.counting.seed_length
        return [
            (question(x[:seed], len(x) - seed, self.counting.order, self.with_code), as_list(x))
            for x in sequences
        ]

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        """Draw whole texts, of which the answer's tokens are scored.

        In evaluation only the numbers that the function generated are scored.
        """
        sequences = self.counting.sequences(generator, size, evaluating).tolist()
        texts = self.texts(sequences)
        end = self.tokenizer.eos_token_id
        rows = [[*self.ids(prompt), *self.ids(answer), end] for prompt, answer in texts]
        ids_BT = torch.tensor(rows, device=generator.device)
        inputs_BT = ids_BT[:, :-1]
        targets_BT = ids_BT[:, 1:]
        scored_BT = torch.zeros_like(inputs_BT, dtype=torch.bool)
        scored_BT[:, self.lengths[0] - 1 :] = True
        if evaluating:
            digits = torch.tensor([self.ids(str(n))[0] for n in range(10)])
            scored_BT &= torch.isin(targets_BT, digits.to(targets_BT))
            scored_BT &= scored_BT.cumsum(1) > self.counting.seed_length
        return Batch(inputs_BT, targets_BT, scored_BT)

    def samples(self, model: nn.Module, generator: torch.Generator) -> Json:
        """Let the model write answers; return shares by verdict, and a few answers of each kind."""
        sequences = self.counting.sequences(generator, self.answers, evaluating=True).tolist()
        prompts = [prompt for prompt, _ in self.texts(sequences)]
        texts = write(model.language_model, self.tokenizer, prompts, self.lengths[1])
        found = [
            judged(t, x, self.counting.seed_length) for t, x in zip(texts, sequences, strict=True)
        ]
        return {"generated": tally(found), "examples": examples(found)}


@torch.no_grad()
def write(language_model: nn.Module, tokenizer, prompts: list[str], most: int) -> list[str]:
    """Generate greedily after each prompt, up to ``most`` tokens or the end of the text.

    All prompts have the same number of tokens.
    """
    ids_BT = tokenizer(prompts, add_special_tokens=False, return_tensors="pt")["input_ids"]
    end = tokenizer.eos_token_id
    was_training = language_model.training
    language_model.eval()
    found_BT = language_model.generate(
        input_ids=ids_BT,
        attention_mask=torch.ones_like(ids_BT),
        max_new_tokens=most,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        pad_token_id=end,
        eos_token_id=end,
    )
    language_model.train(was_training)
    return tokenizer.batch_decode(found_BT[:, ids_BT.shape[1] :], skip_special_tokens=True)


class Prompted(nn.Module):
    """A causal language model as ``model(inputs, scored) -> logits``, the shared beginning of a
    batch run once.
    """

    def __init__(self, language_model: nn.Module):
        super().__init__()
        self.language_model = language_model

    def plan(self, scored_BT: Tensor) -> list[MicroBatch]:
        """Plan one part: a causal model runs once."""
        return [MicroBatch(scored_BT)]

    def forward(
        self, inputs_BT: Tensor, scored: Tensor | MicroBatch, prompt_lengths_B: Tensor | None = None
    ) -> Tensor:
        """Return logits (N, V) after the scored positions; the language head is run only there."""
        scored_BT = scored.scored_BT if isinstance(scored, MicroBatch) else scored
        adapted = hasattr(self.language_model, "peft_config")
        whole = self.language_model.get_base_model() if adapted else self.language_model
        body = whole.get_decoder()
        head = whole.get_output_embeddings()
        shared = min(shared_tokens(inputs_BT), int(scored_BT.any(0).nonzero()[0]))
        if shared < 2:
            return head(body(input_ids=inputs_BT, use_cache=False).last_hidden_state[scored_BT])
        cache = body(input_ids=inputs_BT[:1, :shared], use_cache=True).past_key_values
        for layer in cache.layers:
            layer.keys, layer.values = (
                x.expand(len(inputs_BT), -1, -1, -1) for x in (layer.keys, layer.values)
            )
        rest_BRD = body(
            input_ids=inputs_BT[:, shared:], past_key_values=cache, use_cache=True
        ).last_hidden_state
        return head(rest_BRD[scored_BT[:, shared:]])


def shared_tokens(inputs_BT: Tensor) -> int:
    """Return the number of first tokens that all rows share; 0 if there is only one row."""
    if len(inputs_BT) < 2:
        return 0
    return int((inputs_BT == inputs_BT[:1]).all(0).long().cumprod(0).sum())
