"""Pretrained bodies in the library's own training loop.

They are a BERT as ENTP (Figure 3), and LoRA on a language model (Figures 4 and 9).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from entp_lab.configs import Json, RunConfig
from entp_lab.resume import CURRENT, Outcome, train_run
from entp_lab.studies import Study
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import constant_baseline, evaluate
from entp_lib.tasks import Counting, Task, generator_for, seed_from
from entp_lib.validation import ConfigError, from_dict, one_of, require
from entp_papers.entp.pretrained import weights
from entp_papers.entp.pretrained.adapter import Adapted, symbol_tokens
from entp_papers.entp.pretrained.prompts import Prompted, PromptTask


def encoder_study(
    model: str,
    start: str,
    architecture: str,
    read_in: str,
    layers: int,
    task: dict,
    train_config: dict,
    seed: int,
) -> Study:
    """Train a body of ``model`` on a counting task: (metrics, curves) as a training run's record
    has them.

    ``start``: its trained weights, or random ones of the same architecture drawn from ``seed``.
    ``read_in``: symbols as the model's own tokens, or by fresh embeddings. ``layers``: how many of
    its first layers are used, 0 for all. ConfigError for parameters that the model does not allow.
    """
    one_of("start", start, ("pretrained", "random"))
    one_of("read_in", read_in, ("tokens", "fresh"))
    shape = weights.read("AutoConfig", model)
    depth = shape.num_hidden_layers
    require(0 <= layers <= depth, f"layers = {layers}: {model!r} has {depth}; 0 means all of them")
    counting = from_dict(Counting, task)
    config = run_config(
        "pretrained_encoder", shape, architecture, counting, task, train_config, seed, layers
    )
    body = weights.encoder(model, None if start == "pretrained" else seed_from("body", seed))
    if layers:
        kept = next((part for part in body.modules() if isinstance(part, nn.ModuleList)), None)
        require(
            kept is not None,
            f"layers = {layers}: a {shape.model_type!r} has no list of layers; use 0 for all",
        )
        del kept[layers:]
    tokens = (
        symbol_tokens(weights.read("AutoTokenizer", model), counting.vocab_size)
        if read_in == "tokens"
        else None
    )
    adapted = Adapted(
        body, architecture, counting.vocab_size, tokens=tokens, seed=seed_from("read_in", seed)
    )
    outcome = train_run(config, model=adapted)
    return outcome.metrics | spent(outcome), outcome.state.curves


def lora_study(
    model: str,
    task: Json,
    with_code: bool,
    rank: int,
    train_config: Json,
    answers: int,
    seed: int,
) -> Study:
    """Fine-tune ``model`` on Table 5's prompts and let it answer: (metrics, curves).

    ``rank``: of LoRA on every linear map but the read-out, with alpha twice the rank; 0 trains all
    weights, for models made for tests. Token accuracy is of the numbers that the function
    generated, teacher-forced; ``generated`` is what the model wrote by itself. The adapter of a
    record stays among the checkpoints, where peft reads it.
    """
    language_model, prompts = prompts_for(model, task, with_code, answers)
    config = run_config(
        "pretrained_lora", language_model.config, "decoder", prompts, task, train_config, seed
    )
    with tunable(language_model, model, rank, seed) as tuned:
        outcome = train_run(config, task=prompts, model=Prompted(tuned))
        checkpoint = CURRENT.get()
        if rank and checkpoint is not None:
            with weights.quiet():
                tuned.save_pretrained(checkpoint.path.with_suffix(".adapter"))
    return finished(outcome, prompts.counting, config), outcome.state.curves


def zero_shot_study(
    model: str, task: Json, with_code: bool, sequences: int, answers: int, seed: int
) -> Study:
    """Ask ``model`` Table 5's prompts before any training: (metrics, {})."""
    language_model, prompts = prompts_for(model, task, with_code, answers)
    asked = Prompted(language_model)
    metrics = evaluate(asked, prompts, sequences, seed, "final", detailed=True)
    metrics["baseline"] = constant_baseline(prompts.counting, max(sequences, 1024), seed)
    return metrics | prompts.samples(asked, generator_for("cpu", "samples", seed)), {}


def lifted_study(
    model: str,
    architecture: str,
    task: Json,
    rank: int,
    train_config: Json,
    seed: int,
) -> Study:
    """Fine-tune ``model`` on the bare sequence, its mask kept (``decoder``) or lifted (``entp``).

    There is no prompt: symbols are the model's tokens of the digits, read in and out by trained
    copies of their rows.
    """
    language_model, tokenizer = weights.language_model(model)
    counting = from_dict(Counting, task)
    config = run_config(
        "pretrained_lora", language_model.config, architecture, counting, task, train_config, seed
    )
    tokens = symbol_tokens(tokenizer, counting.vocab_size)
    output_VD = language_model.get_output_embeddings().weight.detach()[tokens]
    body = language_model.get_decoder()
    embeddings = body.get_input_embeddings()
    with tunable(language_model, model, rank, seed):
        try:
            adapted = Adapted(
                body, architecture, counting.vocab_size, tokens=tokens, output_VD=output_VD
            )
            outcome = train_run(config, model=adapted)
        finally:
            body.set_input_embeddings(embeddings)
    return finished(outcome, counting, config), outcome.state.curves


def dry_run_study(**params: Any) -> Study:
    """Refuse to rehearse a provider's fine-tuning again: its record is only stored."""
    raise ConfigError(
        "the rehearsal of a provider's fine-tuning is only stored: it cannot be computed again"
    )


def prompts_for(
    model: str, task: Json, with_code: bool, answers: int
) -> tuple[nn.Module, PromptTask]:
    """Return a language model, and the counting task as prompts for it."""
    language_model, tokenizer = weights.language_model(model)
    vocab_size = language_model.get_output_embeddings().weight.shape[0]
    return language_model, PromptTask(
        from_dict(Counting, task), tokenizer, vocab_size, with_code, answers
    )


def run_config(
    name: str,
    shape,
    architecture: str,
    task: Task,
    params: dict,
    train_config: dict,
    seed: int,
    layers: int = 0,
) -> RunConfig:
    """Return the configuration of the run that the training loop reads.

    ``shape`` is a configuration of transformers; vocabulary and length are those of ``task``.
    """
    own = layers or shape.num_hidden_layers, shape.num_attention_heads, shape.hidden_size
    model = ModelConfig(architecture, *own, task.vocab_size, task.length)
    return RunConfig(
        name, "quick", "counting", params, model, from_dict(TrainConfig, train_config), seed, seed
    )


def spent(outcome: Outcome) -> Json:
    """Return steps, tokens through the layers, seconds and trained parameters of a run."""
    state = outcome.state
    costs = outcome.costs
    return {
        "steps": state.step,
        "token_forwards": costs["token_forwards"],
        "train_seconds": state.seconds,
        "cpu_seconds": costs["cpu_seconds"],
        "parameters": sum(p.numel() for p in outcome.model.parameters() if p.requires_grad),
    }


def finished(outcome: Outcome, counting: Counting, config: RunConfig) -> Json:
    """Return a run's metrics with the baseline on the numbers only, and its cost."""
    baseline = constant_baseline(
        counting, max(config.train.final_eval_sequences, 1024), config.data_seed
    )
    return outcome.metrics | {"baseline": baseline} | spent(outcome)


@contextlib.contextmanager
def tunable(language_model: nn.Module, name: str, rank: int, seed: int) -> Iterator[nn.Module]:
    """Yield the model with LoRA of ``rank`` on its linear maps, drawn from ``seed``, all else
    frozen.

    The model is restored afterwards, so that the next run of the process starts from the same
    weights.
    """
    if rank == 0:
        before = {key: value.clone() for key, value in language_model.state_dict().items()}
        try:
            yield language_model.requires_grad_(True)
        finally:
            language_model.load_state_dict(before, strict=False)
        return
    peft = weights.optional("peft", "LoRA")
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), weights.quiet():
        torch.manual_seed(seed_from("lora", seed))
        tuned = peft.get_peft_model(language_model, config)
    config.base_model_name_or_path = name  # peft puts a path of this machine there, or nothing
    try:
        yield tuned
    finally:
        tuned.unload()
