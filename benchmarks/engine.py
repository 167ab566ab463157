"""The ENTP engine against what it replaces, as ratios measured in turn in one run: ``python -m benchmarks.engine``.

    python -m benchmarks.engine                    # every case, several minutes on two cores
    python -m benchmarks.engine --quick            # small batches, within 50 seconds on two cores
    python -m benchmarks.engine --json rows.json   # the table as rows too
    python -m benchmarks.engine --device cuda --dtype bf16   # batch 64, and the loop's blocks compiled

A ratio above 1 says how many times faster than ``against`` the engine is; against a decoder, which does less, it is
below 1. A training step has also the ratio that the operations alone would give (every matrix product at one
rate) and the share that the engine reaches of the rate of large square matrix products in the same run.
``peak_memory_ratio`` is the growth of resident memory over the step, that of ``against`` as 1; it is empty where the
kernel does not let it be measured. Lengths, sizes and batches are in the name of the case.
"""

import functools
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F

from benchmarks import in_turn, parser_of, show
from entp_lib import heap
from entp_lib.arithmetic import multiplies_bf16
from entp_lib.config import SIZES, ModelConfig
from entp_lib.models import build_model
from entp_lib.models.decoding import generate
from entp_lib.models.entp import micro_batch_tokens, token_forwards
from entp_lib.records.provenance import available_cores, device_name
from entp_lib.tasks import Addition, LongAddition, generator_for

VOCAB, COLUMNS = 64, "case size dtype device against ratio_median ratio_min ratio_max peak_memory_ratio".split()


def model_of(size: str, length: int, device: str, architecture: str = "entp"):
    cfg = ModelConfig.from_size(size, architecture=architecture, vocab_size=VOCAB, max_length=length)
    return build_model(cfg, device=device)


def data(batch: int, length: int, device: str):
    generator = torch.Generator().manual_seed(0)
    draw = torch.randint(VOCAB, (2, batch, length), generator=generator).to(device)
    return draw[0], draw[1]


def engine_step(model, inputs_BT, targets_BT, wanted_BT, method: str = "fast") -> None:
    """Forward and backward of the mean loss over the wanted positions, as training does it."""
    model.entp_method = method
    model.zero_grad(set_to_none=True)
    for part in model.plan(wanted_BT):
        losses = F.cross_entropy(model(inputs_BT, part), targets_BT[part.wanted_BT], reduction="sum")
        (losses / inputs_BT.numel()).backward()


def loop_step(model, inputs_BT, targets_BT) -> None:
    """The definition, batched over rows: one prefix length after the other, its gradient taken at once."""
    model.zero_grad(set_to_none=True)
    for t in range(1, inputs_BT.shape[1] + 1):
        x = model.embed(inputs_BT[:, :t])
        for block in model.blocks:
            x = block(x)
        losses = F.cross_entropy(model.head(model.ln_f(x[:, -1])), targets_BT[:, t - 1], reduction="sum")
        (losses / inputs_BT.numel()).backward()


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
        losses = F.cross_entropy(model.head(model.ln_f(x)), targets_BT[rows_P, ends_P], reduction="sum")
        (losses / inputs_BT.numel()).backward()


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
        heap.give_back()
        Path("/proc/self/clear_refs").write_text("5")
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


def matmul_rate(device: str) -> float:
    """Multiply-adds per second of large square matrix products, in the dtype of the run."""
    n = 8192 if device == "cuda" else 1024
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    a, b = torch.randn(2, n, n, device=device, dtype=dtype)
    a @ b
    return n**3 / min(seconds(lambda: a @ b, device) for _ in range(9))


def units(layers: int, fast: bool) -> int:
    """Matrix work of one (prefix, position) pair in units of D²: 12 a layer, or what the engine leaves of it."""
    return 9 + 12 * (layers - 2) if fast else 12 * layers


def training_cases(size: str, device: str, quick: bool) -> list[dict]:
    """A training step on all prefixes against the loop, packed rows against groups, and a padded batch."""
    length, repeat = 64, (2 if size == "small" else 1) if quick else 5
    candidates = {"small": [8], "medium": [2]} if quick else {"small": [4, 8, 16, 32], "medium": [4, 8, 16]}
    batches = [64] if device == "cuda" else candidates[size]
    model, layers, width = model_of(size, length, device), SIZES[size]["n_layers"], SIZES[size]["width"]
    if device == "cuda":  # the loop is bound by launches there: compiled, it is the stronger opponent
        for block in model.blocks:
            block.compile(dynamic=True)

    def step_of(step: Callable, batch: int, *rest) -> Callable[[], None]:
        inputs, targets = data(batch, length, device)
        wanted = [torch.ones_like(inputs, dtype=torch.bool)] if step is engine_step else []
        return functools.partial(step, model, inputs, targets, *wanted, *rest)

    times = {}
    for batch in batches if len(batches) > 1 else ():
        loop = step_of(loop_step, batch)
        loop()
        times[batch] = seconds(loop, device) / batch
    batch = min(times, key=times.get) if times else batches[0]
    case = f"train, T = {length}, all prefixes, batch {batch}"
    row = compare(step_of(engine_step, batch), step_of(loop_step, batch), device, repeat)
    done = 3 * batch * length * (length + 1) / 2 * units(layers, True) * width**2
    row["share_of_matmul_rate"] = done / row["seconds"] / matmul_rate(device)
    bound = units(layers, False) / units(layers, True)
    rows = [row | {"case": case, "against": "loop at its best batch", "operation_bound": bound}]
    if not quick:
        row = compare(step_of(engine_step, batch, "packed"), step_of(engine_step, batch, "grouped"), device, 3)
        rows.append(row | {"case": f"{case}, packed rows", "against": "groups of one length"})
    if not (quick and size == "medium"):
        batch = 1 if quick else 4
        padded = step_of(padded_step, batch, micro_batch_tokens(device, width, length))
        row = compare(step_of(engine_step, batch), padded, device, 1 if quick else repeat)
        case = f"train, T = {length}, all prefixes, batch {batch}"
        rows.append(row | {"case": case, "against": "padded batch of prefixes"})
    return [row | {"size": size} for row in rows]


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
    bound = token_forwards("entp", everything) / token_forwards("entp", answer)
    about = {"case": "train, T = 13, answer only, batch 64", "size": size, "against": "all prefixes"}
    return row | about | {"operation_bound": bound}


def against_decoder(task: Addition | LongAddition, size: str, device: str, quick: bool) -> dict:
    """Sums scored on their answers: a step of ENTP against a decoder's of the same batch, on one thread as runs are."""
    rows = 16 if quick else 64
    batch = task.batch(generator_for(device, "benchmark"), rows)
    length, layers = batch.inputs_BT.shape[1], SIZES[size]["n_layers"]
    models = [model_of(size, length, device, architecture) for architecture in ("entp", "decoder")]
    arguments = (batch.inputs_BT, batch.targets_BT, batch.wanted_BT)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    row = compare(*(functools.partial(engine_step, m, *arguments) for m in models), device, 3 if quick else 9)
    torch.set_num_threads(before)
    entp, decoder = (token_forwards(name, batch.wanted_BT) for name in ("entp", "decoder"))
    return row | {
        "case": f"train, sums of {task.most_digits('train')} digits, T = {length}, answer only, batch {rows}",
        "size": size,
        "against": "decoder",
        "operation_bound": decoder * units(layers, False) / (entp * units(layers, True)),
    }


def bf16_case(width: int, layers: int, heads: int, architecture: str, quick: bool) -> dict:
    """A training step in bf16 on a CPU against the same step in fp32, one thread."""
    cfg = ModelConfig(architecture, layers, heads, width, VOCAB, 64)
    rows = 4 if quick else 16
    model, (inputs_BT, targets_BT) = build_model(cfg), data(rows, 64, "cpu")
    arguments = (model, inputs_BT, targets_BT, torch.ones_like(inputs_BT, dtype=torch.bool))

    def step(enabled: bool) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            engine_step(*arguments)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    row = compare(functools.partial(step, True), functools.partial(step, False), "cpu", 3 if quick else 7)
    torch.set_num_threads(before)
    how = "instructions of the processor" if multiplies_bf16() else "operands rounded, products in fp32"
    case = f"train in bf16 ({how}), {architecture}, T = 64, batch {rows}, one thread"
    return row | {"case": case, "size": f"{layers} x {width}", "against": "fp32"}


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
    wanted = torch.ones_like(inputs, dtype=torch.bool)

    def step(method: str) -> None:
        model.method = method
        model.zero_grad(set_to_none=True)
        for part in model.plan(wanted):
            losses = F.cross_entropy(model(inputs, part), targets[part.wanted_BT], reduction="sum")
            (losses / inputs.numel()).backward()

    row = compare(functools.partial(step, "grouped"), functools.partial(step, "reference"), device, 1 if quick else 5)
    done = 3 * token_forwards("entp", wanted) * units(layers, False) * width**2
    return [
        row
        | {
            "case": f"BERT as ENTP, {layers} layers of {width}, T = {length}, batch {batch}",
            "size": "bert",
            "against": "loop over single prefixes",
            "share_of_matmul_rate": done / row["seconds"] / matmul_rate(device),
        }
    ]


def measure(device: str, quick: bool) -> pd.DataFrame:
    """One row per case; columns as in the module's head, and what a training step adds."""
    rows = []
    for size in ("small", "medium"):
        rows += training_cases(size, device, quick)
    rows += [answer_only("small", device, quick), generation("small", device, quick)]
    for task in (Addition(), LongAddition(n_train=2000, n_validation=20, n_test=20)):
        rows.append(against_decoder(task, "small", device, quick))
    if importlib.util.find_spec("transformers"):  # a bare machine goes without this comparison
        rows += [loop_honesty(size, device, quick) for size in (("small",) if quick else ("small", "medium"))]
    rows += pretrained_encoder(device, quick)
    if device == "cpu":
        shapes = [(96, 3, 3), (192, 3, 3)] if quick else [(96, 3, 3), (192, 3, 3), (384, 6, 6)]
        rows += [bf16_case(*shape, name, quick) for shape in shapes for name in ("entp", "decoder")]
    dtype = "bf16" if torch.is_autocast_enabled(device) else "fp32"
    table = pd.DataFrame(rows).assign(dtype=dtype, device=device)
    return table[[*COLUMNS, "operation_bound", "share_of_matmul_rate"]]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="small batches, few repetitions")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: matrix products by autocast")
    options = parser.parse_args()
    torch.set_num_threads(available_cores())
    heap.keep_freed()  # as training does
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
        table = measure(options.device, options.quick)
    print(f"{device_name(options.device)}, {available_cores()} cores, torch {torch.__version__}, {options.dtype}")
    show(table, 2, options.json)


if __name__ == "__main__":
    main()
