"""What live cells of notebooks show: one text, and the library's model and loop."""

import ast
import math
import re
from pathlib import Path

import nbformat
import plain_entp
import pytest
import torch

from entp_lab.notebooks import notebook_paths
from entp_lib import ModelConfig, TrainConfig, Transformer, tasks
from entp_lib.training import TrainingState, learning_rate, make_optimizer, set_learning_rate, update
from entp_lib.validation import ConfigError

TASKS = {
    "counting": tasks.Counting(length=8, seed_length=3, symbols=8, held_out=0.2),
    "triplets": tasks.Triplets(length=6, symbols=8, modulus=8),
}
SHAPE = {"width": 16, "heads": 2, "layers": 2}
PREDICTORS = pytest.mark.parametrize("predict", [plain_entp.decoder, plain_entp.entp], ids=lambda p: p.__name__)


def library_twin(plain, predict, task):
    """Return the library's model with the weights of a plain one."""
    shape = dict(n_layers=SHAPE["layers"], n_heads=SHAPE["heads"], width=SHAPE["width"])
    config = ModelConfig(predict.__name__, vocab_size=task.vocab_size, max_length=task.length, **shape)
    twin = Transformer(config)
    weights = plain.state_dict().items()
    twin.load_state_dict({re.sub(r"\.(qkv|out)\.", r".attention.\1.", name): p for name, p in weights})
    return twin


def parts():
    """Return the parts of the text by the ids of the cells that show them."""
    text = Path(plain_entp.__file__).read_text(encoding="utf-8")
    _, *found = re.split(r"^# %% (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(found[::2], map(str.strip, found[1::2]), strict=True))


PARTS = parts()
CELLS = {
    f"{path.stem}-{cell.id}": cell
    for path in notebook_paths()
    for cell in nbformat.read(path, as_version=4).cells
    if cell.id in PARTS
}


@PREDICTORS
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_same_weights_give_the_library_s_logits(predict, task):
    torch.manual_seed(0)
    plain = plain_entp.Transformer(task.vocab_size, task.length, **SHAPE).double()
    batch = task.batch(tasks.generator_for("cpu", "logits"), 5)
    first = int(batch.scored_BT.any(0).nonzero()[0]) + 1
    logits = predict(plain, batch.inputs_BT, first)[batch.scored_BT[:, first - 1 :]]
    twin = library_twin(plain, predict, task).double()
    assert (logits - twin(batch.inputs_BT, batch.scored_BT)).abs().max() < 1e-10


@PREDICTORS
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_loop_makes_the_library_s_steps(predict, task):
    steps = 20
    torch.manual_seed(3)
    begin = plain_entp.Transformer(task.vocab_size, task.length, **SHAPE)
    trained, curve = plain_entp.learn(predict, task, steps, seed=3, every=1, **SHAPE)
    twin = library_twin(begin, predict, task)
    config = TrainConfig(steps=steps, max_lr=3e-3, min_lr=0.0, warmup_steps=steps // 10, weight_decay=0.0)
    state = TrainingState(twin, make_optimizer(twin, config), config, torch.zeros((), dtype=torch.float64))
    for step, point in enumerate(curve, start=1):
        set_learning_rate(state.optimizer, learning_rate(step, config))
        update(state, task, task.batch(torch.Generator().manual_seed(3 * 10**6 + step), 64))
        assert point["step"] == step
        assert math.isclose(point["loss"], float(state.loss_sum), rel_tol=1e-3)
        state.loss_sum.zero_()
    ours = library_twin(trained, predict, task).state_dict()
    assert all((ours[name] - p).abs().max() < 1e-3 for name, p in twin.state_dict().items())


@pytest.mark.parametrize("name", CELLS)
def test_the_cell_is_the_text_that_is_tested(name):
    cell = CELLS[name]
    assert cell.source == PARTS[cell.id], "write the change in tests/plain_entp.py and in every such cell"


def test_model_and_loop_fit_a_screen():
    lines = [line.strip() for text in PARTS.values() for line in text.splitlines()]
    assert len([line for line in lines if line and not line.startswith('"""')]) <= 60


SETTINGS = {"task", "model", "shape", "steps", "trained"}
LIVE = {path.stem: path for path in notebook_paths() if f"{path.stem}-plain-loop" in CELLS}
IMPOSSIBLE = {
    "width": (r"\bwidth=64\b", "width=65", "width = 65"),
    "steps": (r"live\.steps\(\d+\)", "live.steps(0)", "steps = 0: must be"),
    "prompt": (r"\bseed_length=\d+", "seed_length=11", "must be at least seed_length = 11"),
}


def never(*_, **__):
    raise AssertionError("it began to train")


def run_settings(path, pattern, value):
    """Run what a notebook sets before it trains live, with one setting replaced."""
    cells = nbformat.read(path, as_version=4).cells
    source = "\n".join(c.source for c in cells if c.cell_type == "code" and c.id not in PARTS)
    source, count = re.subn(pattern, value, source, count=1)
    if "seed_length" in pattern and not count:
        pytest.skip("its sequences have no prompt")
    assert count
    names = {**vars(plain_entp), "learn": never}
    for node in ast.parse(source).body:
        targets = {ast.unparse(target) for target in getattr(node, "targets", ())}
        if isinstance(node, ast.Import | ast.ImportFrom) or targets & SETTINGS:
            exec(compile(ast.Module([node], []), path.name, "exec"), names)


@pytest.mark.parametrize("path", LIVE.values(), ids=LIVE)
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_setting_that_cannot_be_is_one_line_before_anything_trains(path, name):
    pattern, value, message = IMPOSSIBLE[name]
    with pytest.raises(ConfigError, match=message):
        run_settings(path, pattern, value)


def test_a_task_that_does_not_exist_is_one_line_with_those_that_do():
    with pytest.raises(AttributeError, match="no task Countin: .* Counting") as caught:
        _ = tasks.Countin
    assert len(caught.value._render_traceback_()) == 1
