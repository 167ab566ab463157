"""LoRA on a causal language model: Table 5's prompts (Figures 4 and 9), and the same model with its mask lifted."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from entp_lib import paths
from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.records.resuming import CURRENT, trained
from entp_lib.tasks import Counting, generator_for, seed_from
from entp_lib.training.evaluation import constant_baseline, evaluate
from entp_lib.training.loop import Outcome
from entp_lib.validation import from_dict, require
from entp_papers.entp.pretrained import weights
from entp_papers.entp.pretrained.adapter import Adapted, symbol_tokens
from entp_papers.entp.pretrained.prompted import Prompted, PromptTask

Found = tuple[dict[str, Any], dict[str, list]]


def lora_study(
    model: str,
    task: dict[str, Any],
    with_code: bool,
    rank: int,
    train_config: dict[str, Any],
    answers: int,
    seed: int,
) -> Found:
    """Fine-tune ``model`` on Table 5's prompts and let it answer: (metrics, curves).

    ``rank``: of LoRA on every linear map but the read-out, with alpha twice the rank; 0 trains all weights, for models
    made for tests. Token accuracy is of the numbers that the function generated, teacher-forced; ``generated`` is what
    the model wrote by itself. The adapter of a record stays among the checkpoints.
    """
    language_model, tokenizer = weights.language_model(model)
    prompts = prompt_task(language_model, tokenizer, task, with_code, answers)
    with tunable(language_model, model, rank, seed) as tuned:
        config = run_config(language_model, "decoder", task, train_config, prompts.vocab_size, prompts.length, seed)
        outcome = trained(config, task=prompts, model=Prompted(tuned))
        kept = CURRENT.get()
        if rank and kept is not None:
            save_adapter(tuned, kept.companion("adapter"))
    return finished(outcome, prompts.counting, config), outcome.state.curves


def zero_shot_study(
    model: str, task: dict[str, Any], with_code: bool, sequences: int, answers: int, seed: int
) -> Found:
    """The model's answers to Table 5's prompts before any training: (metrics, {})."""
    language_model, tokenizer = weights.language_model(model)
    prompts = prompt_task(language_model, tokenizer, task, with_code, answers)
    asked = Prompted(language_model)
    metrics = evaluate(asked, prompts, sequences, seed, "final", detailed=True)
    metrics["baseline"] = constant_baseline(prompts.counting, max(sequences, 1024), seed)
    return metrics | prompts.samples(asked, generator_for("cpu", "samples", seed)), {}


def lifted_study(
    model: str,
    architecture: str,
    task: dict[str, Any],
    rank: int,
    train_config: dict[str, Any],
    seed: int,
    token_budget: int = 1024,
) -> Found:
    """Fine-tune ``model`` on the bare sequence, its mask kept (``decoder``) or lifted (``entp``): (metrics, curves).

    There is no prompt: symbols are the model's own tokens of the digits, read in and out by copies of their rows, which
    are trained too.
    """
    language_model, tokenizer = weights.language_model(model)
    counting = from_dict(Counting, task)
    tokens = symbol_tokens(tokenizer, counting.vocab_size)
    output_VD = language_model.get_output_embeddings().weight.detach()[tokens]
    body = language_model.get_decoder()
    own = body.get_input_embeddings()
    with tunable(language_model, model, rank, seed):
        try:
            adapted = Adapted(
                body,
                architecture,
                counting.vocab_size,
                tokens=tokens,
                output_VD=output_VD,
                token_budget=token_budget,
            )
            sizes = counting.vocab_size, counting.length
            config = run_config(language_model, architecture, task, train_config, *sizes, seed)
            outcome = trained(config, model=adapted)
        finally:
            body.set_input_embeddings(own)
    return finished(outcome, counting, config), outcome.state.curves


def prompt_task(language_model, tokenizer, task: dict[str, Any], with_code: bool, answers: int) -> PromptTask:
    """The counting task as prompts for this model."""
    vocab_size = language_model.get_output_embeddings().weight.shape[0]
    return PromptTask(from_dict(Counting, task), tokenizer, vocab_size, with_code, answers)


def run_config(
    language_model, architecture: str, task: dict, train_config: dict, vocab_size: int, length: int, seed: int
) -> RunConfig:
    """What the training loop wants to know; the model's shape stands in the place of a configuration's."""
    shape = language_model.config
    layers, heads, width = shape.num_hidden_layers, shape.num_attention_heads, shape.hidden_size
    model = ModelConfig(architecture, layers, heads, width, vocab_size, length)
    schedule = from_dict(TrainConfig, train_config)
    return RunConfig("pretrained_lora", "quick", "counting", task, model, schedule, seed, seed)


def finished(outcome: Outcome, counting: Counting, config: RunConfig) -> dict[str, Any]:
    """A run's metrics, the baseline that of the numbers, and what it cost."""
    state = outcome.state
    return outcome.metrics | {
        "baseline": constant_baseline(counting, max(config.train.final_eval_sequences, 1024), config.data_seed),
        "steps": state.step,
        "token_forwards": state.token_forwards,
        "train_seconds": state.seconds,
        "cpu_seconds": state.cpu_seconds,
        "parameters": sum(p.numel() for p in outcome.model.parameters() if p.requires_grad),
    }


@contextlib.contextmanager
def tunable(language_model: nn.Module, name: str, rank: int, seed: int) -> Iterator[nn.Module]:
    """Within it the model has LoRA of ``rank`` on its linear maps, drawn from ``seed``, and all else is frozen.

    It is as before afterwards, so that the next run of the process starts from the same weights.
    """
    if rank == 0:
        before = {key: value.clone() for key, value in language_model.state_dict().items()}
        try:
            yield language_model.requires_grad_(True)
        finally:
            language_model.load_state_dict(before, strict=False)
        return
    peft = weights.optional("peft", "LoRA")
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]), weights.quiet():
        torch.manual_seed(seed_from("lora", seed))
        tuned = peft.get_peft_model(language_model, config)
    config.base_model_name_or_path = name  # peft puts a path of this machine there, or nothing
    try:
        yield tuned
    finally:
        tuned.unload()


def save_adapter(tuned: nn.Module, folder: Path) -> None:
    """Write the adapter alone, a few megabytes, with the name of its base."""
    with weights.quiet():
        tuned.save_pretrained(folder)


def load_adapter(folder: Path, model: str) -> nn.Module:
    """``model`` with the adapter of ``folder``. ConfigError where it was made for another base."""
    path = folder / "adapter_config.json"
    require(path.is_file(), f"{paths.relative(folder)}: no adapter there (adapter_config.json is missing)")
    base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    require(
        base == model,
        f"{paths.relative(folder)}: the adapter was made for {base!r}, not for {model!r}; pass model = {base!r}",
    )
    language_model, _ = weights.language_model(model)
    with weights.quiet():
        return weights.optional("peft", "LoRA").PeftModel.from_pretrained(language_model, folder)
