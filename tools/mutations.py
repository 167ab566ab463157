"""Faults of the method, one at a time, each of which a test must notice.

    .venv/bin/python tools/mutations.py [WORD ...]      those whose name has one of the words; all by default

A fault is put into a copy of the tree, where its test is run: nothing here changes. The exit status is the number of
faults that no test noticed.
"""

import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import matplotlib  # noqa: F401 - loaded here, so that no test has to
import pandas  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import torch  # noqa: F401
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("entp_lib", "entp_lab", "entp_papers", "tests", "pyproject.toml")
MODELS = "tests/lib/models/test_models.py"
BIASES = "tests/lib/models/test_relations.py"
DECODING = "tests/lib/models/test_decoding.py"
TRAINING = "tests/lib/training/test_training.py"
EVALUATION = "tests/lib/training/test_evaluation.py"
TASKS = "tests/lib/tasks/test_tasks.py"

# What is wrong, the module of entp_lib, the text as it is, the text with the fault, and the test that notices.
FAULTS = [
    (
        "a prefix one too short",
        "entp",
        "x_BTD[b : b + 1, : t + 1]",
        "x_BTD[b : b + 1, : max(t, 1)]",
        f"{BIASES} -k every_way",
    ),
    (
        "read one place early",
        "kernels/grouping",
        "span.start + length - 1, span.stop",
        "span.start + length - 1 - (length > 1), span.stop",
        f"{BIASES} -k every_way",
    ),
    (
        "a causal mask upside down",
        "model",
        "place_T <= place_T[:, None]",
        "place_T >= place_T[:, None]",
        f"{BIASES} -k every_way",
    ),
    ("a decoder without a mask", "model", "causal=mask is None", "causal=False", f"{BIASES} -k every_way"),
    (
        "ENTP with a causal mask",
        "kernels/grouping",
        "block.attention(q, k, v, mask, False)",
        "block.attention(q, k, v, mask, mask is None)",
        f"{BIASES} -k every_way",
    ),
    ("an open prompt that is closed", "model", "allowed | both_BTT", "allowed & both_BTT", f"{BIASES} -k every_way"),
    ("no 1/sqrt(K) in the last layer", "kernels/grouping", "** -0.5", "** 0", f"{BIASES} -k every_way"),
    (
        "the value's bias dropped",
        "kernels/grouping",
        "transpose(0, 1) + b_v",
        "transpose(0, 1) + 0 * b_v",
        f"{BIASES} -k every_way",
    ),
    (
        "a rotation the other way",
        "attention_bias",
        "torch.cat([-second, first], -1)",
        "torch.cat([second, first], -1)",
        f"{BIASES} -k every_way",
    ),
    (
        "a mask's sign",
        "attention_bias",
        "scores.masked_fill(~mask, -torch.inf)",
        "scores.masked_fill(mask, -torch.inf)",
        f"{BIASES} -k every_way",
    ),
    ("ALiBi's sign", "positions", "return -slopes_H", "return slopes_H", f"{BIASES} -k every_way"),
    (
        "outputs in the order of lengths",
        "entp",
        "torch.cat(orders).argsort()",
        "torch.arange(len(torch.cat(orders)))",
        f"{BIASES} -k every_way",
    ),
    (
        "a cache one position late",
        "decoding",
        "torch.arange(start, stop, device=device)[None]",
        "torch.arange(start, stop, device=device)[None] + (start > 0)",
        f"{DECODING} -k recomputation",
    ),
    (
        "the bias's gradient a mean",
        "kernels/attention",
        "d_ME.sum(0)",
        "d_ME.mean(0)",
        f"{BIASES} -k every_way",
    ),
    (
        "half of the MLP's output",
        "kernels/mlp",
        "addmm_(active, w_2.t(), alpha=0.5)",
        "addmm_(active, w_2.t(), alpha=0.25)",
        f"{BIASES} -k every_way",
    ),
    (
        "residual weights not scaled down",
        "model",
        "std /= math.sqrt(2 * self.cfg.n_layers)",
        "std /= 1",
        f"{MODELS} -k initial_scales",
    ),
    (
        "warm-up a step late",
        "training",
        "config.max_lr * step / config.warmup_steps",
        "config.max_lr * (step - 1) / config.warmup_steps",
        f"{TRAINING} -k schedule",
    ),
    ("a cosine upside down", "training", "0.5 * (1 + math.cos(", "0.5 * (1 - math.cos(", f"{TRAINING} -k schedule"),
    (
        "weight decay on vectors",
        "training",
        '"weight_decay": 0.0',
        '"weight_decay": config.weight_decay',
        f"{TRAINING} -k vectors",
    ),
    (
        "a loss over a part's own count",
        "training",
        ".sum() / count",
        ".mean()",
        f"{TRAINING} -k add_up",
    ),
    (
        "the mean loss of a step too few",
        "training",
        "% self.config.eval_every + 1",
        "% self.config.eval_every or 1",
        f"{TRAINING} -k training_loss_is_the_mean",
    ),
    (
        "the last best weights kept",
        "training",
        "value > best if rule",
        "value >= best if rule",
        f"{TRAINING} -k first_highest",
    ),
    (
        "any token right makes a sequence right",
        "evaluation",
        "right_BT.all(1)",
        "right_BT.any(1)",
        f"{EVALUATION} -k by_hand",
    ),
    (
        "positions counted from 0",
        "evaluation",
        "scored_T.nonzero()[:, 0] + 1",
        "scored_T.nonzero()[:, 0]",
        f"{EVALUATION} -k by_hand",
    ),
    ("baselines smoothed tenfold", "evaluation", "counts_TV += 0.5", "counts_TV += 5", f"{EVALUATION} -k half_of_one"),
    ("the residue's sign", "tasks/counting", "-(x_BT + x_BT[:, -1:])", "(x_BT + x_BT[:, -1:])", f"{TASKS} -k count"),
    (
        "pairs swapped for squares",
        "tasks/counting",
        "table_BT.gather(1, missing_BT).sum(1)",
        "table_BT.gather(1, x_BT % n).sum(1)",
        f"{TASKS} -k count",
    ),
    (
        "trained on what is held out",
        "tasks/base",
        "held_out(x_BS) != side",
        "held_out(x_BS) == side",
        f"{TASKS} -k held_out",
    ),
    (
        "validation in training",
        "tasks/base",
        'return "validation" if evaluating else "train"',
        'return "train" if evaluating else "validation"',
        f"{TASKS} -k each_part",
    ),
    (
        "a token predicts itself",
        "tasks/base",
        "cls(text_BT[:, :-1], text_BT[:, 1:]",
        "cls(text_BT[:, :-1], text_BT[:, :-1]",
        f"{TASKS} -k trace",
    ),
    (
        "answers written the other way",
        "tasks/addition",
        "answer[::-1] if reversed_answer else answer}$",
        "answer if reversed_answer else answer[::-1]}$",
        "tests/lib/tasks/test_addition.py",
    ),
    (
        "y in another coordinate",
        "tasks/in_context",
        "inputs_BTd[:, 1::2, 0]",
        "inputs_BTd[:, 1::2, 1]",
        "tests/lib/tasks/test_in_context.py",
    ),
    (
        "11 D² for 12",
        "costs",
        "12 * tokens * cfg.width**2",
        "11 * tokens * cfg.width**2",
        "tests/lib/models/test_full_layers.py -k computed",
    ),
]


def is_noticed(folder: Path, module: str, right: str, wrong: str, test: str) -> bool:
    """Tell whether the test fails where the module has the fault."""
    path = folder / "entp_lib" / f"{module}.py"
    text = path.read_text(encoding="utf-8")
    if right not in text:
        raise SystemExit(f"{module}.py has no {right!r}")
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    try:
        status = run_test(folder, test)
    finally:
        path.write_text(text, encoding="utf-8")
    if status not in (0, 1):
        raise SystemExit((folder / "log").read_text(encoding="utf-8"))
    return status == 1


def run_test(folder: Path, test: str) -> int:
    """Return pytest's exit status in a process that has only the method still to import."""
    child = os.fork()
    if not child:
        status = 4
        try:
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(folder)
            sys.path.insert(0, str(folder))
            sys.dont_write_bytecode = True
            settings.register_profile("no shrinking", phases=(Phase.explicit, Phase.generate))
            settings.load_profile("no shrinking")
            options = [
                "-qx",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
            ]
            status = pytest.main([*options, *test.split(maxsplit=2)])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(words: list[str]) -> int:
    """Print, for each fault, whether its test noticed it."""
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
        for name, module, right, wrong, test in FAULTS:
            if words and not any(word in name for word in words):
                continue
            noticed = is_noticed(folder, module, right, wrong, test)
            missed += not noticed
            print(f"{'noticed' if noticed else 'MISSED ':8}{name:40}{test}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
