"""The ENTP engine against what it replaces, as ratios measured in turn in one run: ``python -m benchmarks.engine``.

    python -m benchmarks.engine                    # every case, an hour on two cores
    python -m benchmarks.engine --quick            # small batches, within 50 seconds on two cores
    python -m benchmarks.engine --paper count3-medium decoder --batch 8     # some of the paper's settings, in minutes
    python -m benchmarks.engine --paper count3-small --avx2  # held to AVX2, as on a processor without more
    python -m benchmarks.engine --json rows.json   # the table as rows too
    python -m benchmarks.engine --device cuda --dtype bf16   # without the paper's settings, which are for a CPU

A ratio above 1 says how many times faster than ``against`` the engine is; against a decoder, which does less, it is
below 1. At the paper's settings a training step is set against plain modules, for ENTP in a loop over prefix lengths,
under autocast in bf16: by processor time (``ratio_median`` and its extremes) and by the clock (``ratio_by_clock``).
``share_of_limit`` is the processor time of the step's matrix products alone over that of the step.
``peak_memory_ratio`` is the growth of resident memory over the step, that of ``against`` as 1; it is empty where the
kernel does not let it be measured. Lengths, sizes and batches are in the name of the case.
"""

import functools
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F

from benchmarks import in_turn, parser_of, positive, show
from entp_lab.budgets import token_forwards
from entp_lab.provenance import (
    AVX2,
    arithmetic_here,
    available_cores,
    device_name,
    environment_for,
    has_avx2,
    prepare_memory,
)
from entp_lib import kernels
from entp_lib.config import SIZES, ModelConfig
from entp_lib.decoding import generate
from entp_lib.entp import micro_batch_tokens
from entp_lib.evaluation import autocast
from entp_lib.model import build_model
from entp_lib.tasks import Addition, Batch, LongAddition, generator_for
from entp_lib.tasks.counting import Counting
from entp_lib.training import accumulate_gradients

VOCAB = 64
COLUMNS = "case size dtype device against ratio_median ratio_min ratio_max ratio_by_clock".split()
COLUMNS += "share_of_limit operation_bound peak_memory_ratio".split()


def model_of(size: str, length: int, device: str, architecture: str = "entp"):
    cfg = ModelConfig(architecture, **SIZES[size], vocab_size=VOCAB, max_length=length)
    return build_model(cfg, device=device)


def data(batch: int, length: int, device: str):
    generator = torch.Generator().manual_seed(0)
    draw = torch.randint(VOCAB, (2, batch, length), generator=generator).to(device)
    return draw[0], draw[1]


def engine_step(model, inputs_BT, targets_BT, scored_BT, precision: str = "fp32") -> None:
    """Gradients of the mean loss over the scored positions, as training computes them."""
    model.zero_grad(set_to_none=True)
    batch = Batch(inputs_BT, targets_BT, scored_BT)
    accumulate_gradients(model, Counting(), batch, int(scored_BT.sum()), precision)


def loop_step(model, inputs_BT, targets_BT, scored_BT, precision: str = "fp32") -> None:
    """The definition, batched over rows: one scored prefix length after the other, its gradient taken at once."""
    model.zero_grad(set_to_none=True)
    for t in scored_BT[0].nonzero().flatten().tolist():
        with autocast(inputs_BT.device, precision):
            x = model.embed(inputs_BT[:, : t + 1])
            for block in model.blocks:
                x = block(x)
            logits_BV = model.head(model.ln_f(x[:, -1]))
        (Counting().losses(logits_BV, targets_BT[:, t]).sum() / scored_BT.sum()).backward()


def plain_step(model, inputs_BT, targets_BT, scored_BT, precision: str = "fp32") -> None:
    """A decoder's step by PyTorch's own modules."""
    with kernels.without_fused_kernels():
        engine_step(model, inputs_BT, targets_BT, scored_BT, precision=precision)


def padded_step(model, inputs_BT, targets_BT, tokens: int) -> None:
    """All prefixes of all rows as one padded batch, cut into micro-batches of at most ``tokens`` padded tokens."""
    model.zero_grad(set_to_none=True)
    batch, length = inputs_BT.shape
    ends_N = torch.arange(length, device=inputs_BT.device).repeat(batch)
    rows_N = torch.arange(batch, device=inputs_BT.device).repeat_interleave(length)
    for some in torch.arange(len(ends_N), device=inputs_BT.device).split(max(1, tokens // length)):
        rows_P, ends_P = rows_N[some], ends_N[some]
        mask = (torch.arange(length, device=inputs_BT.device) <= ends_P[:, None])[:, None, None]
        x = model.embed(inputs_BT[rows_P])
        for block in model.blocks:
            x = block(x, mask)
        x = x[torch.arange(len(some), device=x.device), ends_P]
        losses = Counting().losses(model.head(model.ln_f(x)), targets_BT[rows_P, ends_P])
        (losses.sum() / inputs_BT.numel()).backward()


def gpt2_step(theirs, inputs_BT, targets_BT) -> None:
    """One pass of a Hugging Face GPT-2, loss on every position."""
    theirs.zero_grad(set_to_none=True)
    F.cross_entropy(theirs(inputs_BT).logits.flatten(0, 1), targets_BT.flatten()).backward()


def decoder_step(model, inputs_BT, targets_BT) -> None:
    """The same pass with the loop's blocks: what the loop does for one prefix length."""
    model.zero_grad(set_to_none=True)
    x = model.embed(inputs_BT)
    for block in model.blocks:
        x = block(x, causal=False)
    F.cross_entropy(model.head(model.ln_f(x)).flatten(0, 1), targets_BT.flatten()).backward()


def seconds(step: Callable[[], None], device: str) -> float:
    began = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def growth(step: Callable[[], None], device: str) -> float | None:
    """Bytes by which memory grew over the step at its peak; None where that cannot be known."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    try:
        prepare_memory(device)
        before = resident("VmRSS")
        step()
        return resident("VmHWM") - before
    except OSError:
        return None


def resident(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024


def compare(step: Callable[[], None], other: Callable[[], None], device: str, repeat: int) -> dict:
    """Seconds and memory of ``other`` over those of ``step``."""
    growths = [growth(f, device) for f in (step, other)]  # warms both up
    known = all(g is not None and g > 2**20 for g in growths)
    found = in_turn(step, other, repeat, functools.partial(seconds, device=device))
    return found | {"peak_memory_ratio": growths[0] / growths[1] if known else None}


def units(layers: int, fast: bool) -> int:
    """Matrix work of one (prefix, position) pair in units of D²: 12 a layer, or what the engine leaves of it."""
    return 9 + 12 * (layers - 2) if fast else 12 * layers


# The paper's settings: architecture, size, vocabulary, length, batch, first scored prefix.
PAPER = {
    "count3-medium": ("entp", "medium", 64, 64, 64, 17),
    "count3-small": ("entp", "small", 64, 64, 64, 17),
    "match3": ("entp", "medium", 66, 64, 64, 1),
    "text": ("entp", "medium", 50304, 128, 32, 1),
    "decoder": ("decoder", "medium", 64, 64, 64, 17),
}


def products(model, tokens: int, outputs: int, precision: str) -> tuple[Callable[[], None], float]:
    """Part of the matrix products of a step with ``tokens`` in the stack, and how many such parts a step has."""
    cfg, dtype = model.cfg, torch.bfloat16 if precision == "bf16" else torch.float32
    entp = cfg.recomputed_layers > 1
    some = min(tokens, micro_batch_tokens("cpu", cfg.width, cfg.n_layers))
    heads = max(1, outputs * some // tokens)
    block = [(some, cfg.width, n * cfg.width) for n in (3, 1, 4, 4)]
    done = [(torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype), torch.randn(m, n, dtype=dtype))
            for m, k, n in block]  # fmt: skip
    head = torch.randn(heads, cfg.width, dtype=dtype), torch.randn(cfg.vocab_size, cfg.width, dtype=dtype)
    blocks = units(cfg.n_layers, entp) / 12

    def step() -> None:
        for x, w, g in done:
            x @ w.t(), g @ w, g.t() @ x

    def all_of_a_part() -> None:
        for _ in range(round(blocks)):
            step()
        logits = head[0] @ head[1].t()
        logits @ head[1], logits.t() @ head[0]

    return all_of_a_part, tokens / some * blocks / round(blocks)


def times(step: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    step()
    return time.process_time() - processor, time.perf_counter() - clock


def at_paper_setting(name: str, precision: str, batch: int | None, repeat: int) -> dict:
    """A training step at a setting of the paper against plain modules and against its products alone."""
    architecture, size, vocab, length, rows, first = PAPER[name]
    rows = batch or rows
    model = build_model(ModelConfig(architecture, **SIZES[size], vocab_size=vocab, max_length=length))
    inputs_BT, targets_BT = (x % vocab for x in data(rows, length, "cpu"))
    scored_BT = torch.ones_like(inputs_BT, dtype=torch.bool)
    scored_BT[:, : first - 1] = False
    arguments = (model, inputs_BT, targets_BT, scored_BT)
    ours = functools.partial(engine_step, *arguments, precision=precision)
    other = loop_step if architecture == "entp" else plain_step
    theirs = functools.partial(other, *arguments, precision=precision)
    limit, scale = products(model, token_forwards(model.cfg, scored_BT), int(scored_BT.sum()), precision)
    if precision == "bf16":
        kernels.kernel_names()  # compiles, where that is done, before memory and time count
    growths = [growth(f, "cpu") for f in (ours, theirs)]  # warms both up
    limit()
    rounds = [[times(f) for f in (ours, theirs, limit)] for _ in range(repeat)]
    ratios = [b[0] / a[0] for a, b, _ in rounds]
    layers, fast = model.cfg.n_layers, architecture == "entp"
    return {
        "case": f"the paper's {name}, T = {length}, batch {rows}",
        "size": size,
        "dtype": precision,
        "against": "loop over lengths" if fast else "PyTorch's modules",
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ratio_by_clock": statistics.median(b[1] / a[1] for a, b, _ in rounds),
        "share_of_limit": statistics.median(c[0] * scale / a[0] for a, _, c in rounds),
        "operation_bound": units(layers, False) / units(layers, True) if fast else 1.0,
        "peak_memory_ratio": growths[0] / growths[1] if None not in growths else None,
        "cores_had": statistics.median(a[0] / a[1] for a, _, _ in rounds) / torch.get_num_threads(),
    }


def padded_batch(size: str, device: str, quick: bool) -> dict:
    """A step on all prefixes, in groups of one length, against a padded batch of them."""
    length, batch = 64, 64 if device == "cuda" else 1 if quick else 4
    model, (inputs, targets) = model_of(size, length, device), data(batch, length, device)
    scored = torch.ones_like(inputs, dtype=torch.bool)
    groups = functools.partial(engine_step, model, inputs, targets, scored)
    tokens = micro_batch_tokens(device, model.cfg.width, model.cfg.n_layers)
    padded = functools.partial(padded_step, model, inputs, targets, tokens)
    case = f"train, T = {length}, all prefixes, batch {batch}"
    row = compare(groups, padded, device, 3)
    return row | {"case": case, "size": size, "against": "padded batch of prefixes"}


def loop_honesty(size: str, device: str, quick: bool) -> dict:
    """Whether a pass of the loop's blocks is as fast as a well-known implementation of the same size."""
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, heads, width = (SIZES[size][name] for name in ("n_layers", "n_heads", "width"))
    shape = dict(vocab_size=VOCAB, n_positions=64, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
    config = GPT2Config(**shape, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None)
    theirs, ours = GPT2LMHeadModel(config).to(device), model_of(size, 64, device, "decoder")
    steps = ((decoder_step, ours), (gpt2_step, theirs))
    row = compare(*(functools.partial(step, model, *data(16, 64, device)) for step, model in steps), device, 5)
    return row | {"case": "one pass of the loop's blocks, batch 16", "size": size, "against": "Hugging Face GPT-2"}


def answer_only(size: str, device: str, quick: bool) -> dict:
    """Three-digit addition scored on its answer: prefix lengths 9 to 13 of 13."""
    model = model_of(size, 13, device)
    inputs, targets = data(64, 13, device)
    everything = torch.ones_like(inputs, dtype=torch.bool)
    answer = everything.clone()
    answer[:, :8] = False
    steps = (functools.partial(engine_step, model, inputs, targets, some) for some in (answer, everything))
    row = compare(*steps, device, 3 if quick else 9)
    bound = token_forwards(model.cfg, everything) / token_forwards(model.cfg, answer)
    about = {"case": "train, T = 13, answer only, batch 64", "size": size, "against": "all prefixes"}
    return row | about | {"operation_bound": bound}


def against_decoder(task: Addition | LongAddition, size: str, device: str, quick: bool) -> dict:
    """Sums scored on their answers: a step of ENTP against a decoder's of the same batch, on one thread as runs are."""
    rows = 16 if quick else 64
    batch = task.batch(generator_for(device, "benchmark"), rows)
    length, layers = batch.inputs_BT.shape[1], SIZES[size]["n_layers"]
    models = [model_of(size, length, device, architecture) for architecture in ("entp", "decoder")]
    arguments = (batch.inputs_BT, batch.targets_BT, batch.scored_BT)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    row = compare(*(functools.partial(engine_step, m, *arguments) for m in models), device, 3 if quick else 9)
    torch.set_num_threads(before)
    entp, decoder = (token_forwards(model.cfg, batch.scored_BT) for model in models)
    return row | {
        "case": f"train, sums of {task.most_digits('train')} digits, T = {length}, answer only, batch {rows}",
        "size": size,
        "against": "decoder",
        "operation_bound": decoder * units(layers, False) / (entp * units(layers, True)),
    }


def generation(size: str, device: str, quick: bool) -> dict:
    model, length = model_of(size, 256, device, "decoder"), 256
    prompt = data(4, 8, device)[0]
    cached, plain = (functools.partial(generate, model, prompt, length - 8, use_cache=use) for use in (True, False))
    row = compare(cached, plain, device, 1 if quick else 3)
    return row | {"case": "decoder generation to n = 256, batch 4", "size": size, "against": "no cache"}


def pretrained_encoder(device: str, quick: bool) -> list[dict]:
    """A BERT of transformers as ENTP by the adapter, against a loop over single prefixes; random weights.

    Empty without transformers, where there is nothing to adapt.
    """
    try:
        from transformers import BertConfig, BertModel
    except ImportError:
        return []
    from entp_papers.entp.pretrained.adapter import Adapted

    width, layers, length, batch = (128, 2, 16, 4) if quick else (384, 6, 32, 8)
    shape = dict(hidden_size=width, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=4 * width)
    config = BertConfig(vocab_size=VOCAB, max_position_embeddings=64, **shape)
    model = Adapted(BertModel(config, add_pooling_layer=False), "entp", VOCAB).to(device).eval()
    inputs, targets = data(batch, length, device)
    scored = torch.ones_like(inputs, dtype=torch.bool)

    def step(method: str) -> None:
        model.method = method
        model.zero_grad(set_to_none=True)
        for part in model.plan(scored):
            losses = F.cross_entropy(model(inputs, part), targets[part.scored_BT], reduction="sum")
            (losses / inputs.numel()).backward()

    row = compare(functools.partial(step, "grouped"), functools.partial(step, "reference"), device, 1 if quick else 5)
    case = f"BERT as ENTP, {layers} layers of {width}, T = {length}, batch {batch}"
    return [row | {"case": case, "size": "bert", "against": "loop over single prefixes"}]


def measure(device: str, quick: bool, dtype: str) -> list[dict]:
    """Everything but the paper's settings, one row a case."""
    rows = []
    for size in ("small",) if quick else ("small", "medium"):
        rows.append(padded_batch(size, device, quick))
    rows += [answer_only("small", device, quick), generation("small", device, quick)]
    for task in (Addition(), LongAddition(n_train=2000, n_validation=20, n_test=20)):
        rows.append(against_decoder(task, "small", device, quick))
    if importlib.util.find_spec("transformers"):  # a bare machine goes without this comparison
        rows += [loop_honesty(size, device, quick) for size in (("small",) if quick else ("small", "medium"))]
    rows += pretrained_encoder(device, quick)
    return [row | {"dtype": dtype} for row in rows]


def busy(rows: list[dict]) -> str:
    """A line that says that the machine had other work, as a ratio by the clock then means little; empty if idle."""
    cores = min((row["cores_had"] for row in rows if "cores_had" in row), default=1.0)
    load = os.getloadavg()[0]
    if cores > 0.8 and load < torch.get_num_threads() + 1:
        return ""
    return f"the machine was busy: load {load:.1f}, and a step had {cores:.2f} of the cores; trust processor time alone"


def held_to_avx2() -> None:
    """Begin this command anew with every library held to AVX2, which they read when they load."""
    if arithmetic_here() != AVX2:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.engine", *sys.argv[1:]], environment_for(AVX2))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="small batches, few repetitions")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], help="both at the paper's settings, elsewhere fp32")
    parser.add_argument(
        "--paper", nargs="+", choices=PAPER, metavar="ROW", help=f"these rows alone: {', '.join(PAPER)}"
    )
    parser.add_argument("--batch", type=positive, help="of the paper's settings, in place of the paper's")
    parser.add_argument("--repeat", type=positive, default=3, help="rounds of the paper's settings")
    parser.add_argument("--threads", type=positive, default=available_cores())
    parser.add_argument("--avx2", action="store_true", help="hold every library to AVX2")
    options = parser.parse_args()
    if options.device == "cuda" and (options.paper or not torch.cuda.is_available()):
        parser.error("--device cuda: needs a GPU that torch sees, and the paper's settings are for a CPU")
    if options.avx2:
        if not has_avx2():
            parser.error("--avx2: this processor has no AVX2")
        held_to_avx2()
    torch.set_num_threads(options.threads)
    prepare_memory("cpu")  # as training does
    rows = []
    if options.device == "cpu":
        names, batch = options.paper or list(PAPER), options.batch
        if options.quick:
            names, batch = options.paper or ["count3-small", "decoder"], batch or 4
        for name in names:
            for precision in [options.dtype] if options.dtype else ["fp32", "bf16"]:
                rows.append(at_paper_setting(name, precision, batch, 1 if options.quick else options.repeat))
    if not options.paper:
        dtype = options.dtype or "fp32"
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=dtype == "bf16"):
            rows += measure(options.device, options.quick, dtype)
    table = pd.DataFrame(rows).assign(device=options.device).reindex(columns=COLUMNS)
    how = f"{torch.get_num_threads()} threads, torch {torch.__version__}, {arithmetic_here()}"
    named = f", {kernels.kernel_names()}" if (table["dtype"] == "bf16").any() else ""
    print(f"{device_name(options.device)}, {how}{named}")
    print(busy(rows), end="\n" if busy(rows) else "")
    show(table, 2, options.json)


if __name__ == "__main__":
    main()
