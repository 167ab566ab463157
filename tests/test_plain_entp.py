"""What live cells of notebooks show: one text, and the library's model and loop."""

import ast
import re
from pathlib import Path

import nbformat
import plain_entp
import pytest
import torch
from conftest import seeded
from mistakes import refused

from entp_lab.notebooks import notebook_paths
from entp_lib import ModelConfig, TrainConfig, Transformer, tasks
from entp_lib.training import (
    TrainingState,
    learning_rate,
    make_optimizer,
    set_learning_rate,
    update,
)

TASKS = [
    tasks.Counting(length=8, seed_length=3, symbols=8, held_out=0.2),
    tasks.Triplets(length=6, symbols=8, modulus=8),
]
SHAPE = {"width": 16, "heads": 2, "layers": 2}


@pytest.fixture(params=[plain_entp.decoder, plain_entp.entp], ids=lambda p: p.__name__)
def predict(request):
    return request.param


@pytest.fixture(params=TASKS, ids=lambda task: type(task).__name__)
def task(request):
    return request.param


def plain_model(task, seed):
    torch.manual_seed(seed)
    return plain_entp.Transformer(task.vocab_size, task.length, **SHAPE)


def library_twin(plain, predict, task):
    """Return the library's model with the weights of a plain one."""
    twin = Transformer(ModelConfig(predict.__name__, 2, 2, 16, task.vocab_size, task.length))
    weights = plain.state_dict()
    for name in list(weights):
        weights[re.sub(r"\.(qkv|out)\.", r".attention.\1.", name)] = weights.pop(name)
    twin.load_state_dict(weights)
    return twin


TEXT = Path(plain_entp.__file__).read_text(encoding="utf-8")
_, *FOUND = re.split(r"^# %% (.*)\n", TEXT, flags=re.MULTILINE)
# the parts of the text by the ids of the cells that show them
PARTS = dict(zip(FOUND[::2], map(str.strip, FOUND[1::2]), strict=True))
CELLS = {
    f"{path.stem}-{cell.id}": cell
    for path in notebook_paths()
    for cell in nbformat.read(path, as_version=4).cells
    if cell.id in PARTS
}


def test_the_same_weights_give_the_library_s_logits(predict, task):
    plain = plain_model(task, 0).double()
    batch = task.batch(tasks.generator_for("cpu", "logits"), 5)
    first = int(batch.scored_BT.any(0).nonzero()[0]) + 1
    logits = predict(plain, batch.inputs_BT, first)[batch.scored_BT[:, first - 1 :]]
    twin = library_twin(plain, predict, task).double()
    expected = twin(batch.inputs_BT, batch.scored_BT)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


def test_the_loop_makes_the_library_s_steps(predict, task):
    twin = library_twin(plain_model(task, 3), predict, task)
    trained, curve = plain_entp.learn(predict, task, 20, seed=3, every=1, **SHAPE)
    config = TrainConfig(20, max_lr=3e-3, min_lr=0.0, warmup_steps=2, weight_decay=0.0)
    optimizer = make_optimizer(twin, config)
    losses = []
    for step in range(1, 21):
        state = TrainingState(twin, optimizer, config, torch.zeros((), dtype=torch.float64))
        set_learning_rate(optimizer, learning_rate(step, config))
        update(state, task, task.batch(seeded(3 * 10**6 + step), 64))
        losses.append(float(state.loss_sum))
    assert [point["step"] for point in curve] == list(range(1, 21))
    assert [point["loss"] for point in curve] == pytest.approx(losses, rel=1e-3)
    ours = library_twin(trained, predict, task).state_dict()
    torch.testing.assert_close(ours, twin.state_dict(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", CELLS)
def test_the_cell_is_the_text_that_is_tested(name):
    cell = CELLS[name]
    # a change is written in tests/plain_entp.py and in every such cell
    assert cell.source == PARTS[cell.id]


def test_model_and_loop_fit_a_screen():
    lines = map(str.strip, "\n".join(PARTS.values()).splitlines())
    assert sum(bool(line) and not line.startswith('"""') for line in lines) <= 60


SETTINGS = {"task", "model", "shape", "steps", "trained"}
LIVE = {path.stem: path for path in notebook_paths() if f"{path.stem}-plain-loop" in CELLS}
IMPOSSIBLE = {
    "width": (r"\bwidth=64\b", "width=65", "width = 65"),
    "steps": (r"live\.steps\(\d+, tier\)", "live.steps(0, tier)", "steps = 0: must be"),
    "prompt": (r"\bseed_length=\d+", "seed_length=11", "must be at least seed_length = 11"),
}


def run_settings(path, pattern, value):
    """Run what a notebook sets before it trains live, with one setting replaced."""
    cells = nbformat.read(path, as_version=4).cells
    source = "\n".join(c.source for c in cells if c.cell_type == "code" and c.id not in PARTS)
    source, count = re.subn(pattern, value, source, count=1)
    if "seed_length" in pattern and not count:
        pytest.skip("its sequences have no prompt")
    assert count
    names = {**vars(plain_entp), "tier": "best"}
    names["learn"] = lambda *_, **__: pytest.fail("it began to train")
    for node in ast.parse(source).body:
        targets = {ast.unparse(target) for target in getattr(node, "targets", ())}
        if isinstance(node, ast.Import | ast.ImportFrom) or targets & SETTINGS:
            exec(compile(ast.Module([node], []), path.name, "exec"), names)


@pytest.mark.parametrize("path", LIVE.values(), ids=LIVE)
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_setting_that_cannot_be_is_one_line_before_anything_trains(path, name):
    pattern, value, message = IMPOSSIBLE[name]
    with refused(message):
        run_settings(path, pattern, value)


def test_a_task_that_does_not_exist_is_one_line_with_those_that_do():
    with pytest.raises(AttributeError, match="no task Countin: .* Counting") as caught:
        _ = tasks.Countin
    assert len(caught.value._render_traceback_()) == 1
