"""One run over two processes: the gradients of one process but for rounding, one end for all, and
one record.
"""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from entp_lab import paths
from entp_lab.configs import to_dict
from entp_lab.resume import train_run
from entp_lab.store import Store
from entp_lib.model import build_model
from entp_lib.tasks import build_task, generator_for
from entp_lib.training import accumulate_gradients

RANK = """\
import json, sys
import torch
from entp_lab.configs import config_from
from entp_lib.model import build_model
from entp_lab import ranks
from entp_lab.runs import run
from entp_lab.stopping import Cut
from entp_lab.store import Store
from entp_lab.commands import train_along
from entp_lib.tasks import build_task, generator_for
from entp_lib import training as loop

fails, configs = sys.argv[1] == "True", [config_from(config) for config in json.loads(sys.argv[2])]
store = Store(sys.argv[3], read_only=False)
team = ranks.joined()
for config in configs:  # gradients
    task, model = build_task(config.task, config.task_params), build_model(config.model, 1)
    batch = task.batch(generator_for("cpu", "ranks"), 5)
    count = len(batch.targets_N)
    loss = loop.accumulate_gradients(model, task, team.on_batch(batch), count, "fp32")
    loss = team.before_update(model, loss)
    if team.rank == 0:
        found = [loss, *(p.grad for p in model.parameters())]
        torch.save(found, f"{sys.argv[3]}/{config.model.architecture}.pt")
if team.rank == 0:  # training
    steps = iter([False] * 5)
    try:
        run(configs[0], 1, store=store, stop=lambda: next(steps, True))
    except Cut as cut:
        print(cut.step, flush=True)
    torch.distributed.barrier()  # between two commands
    for config in configs:
        run(config, 1, store=store)
else:
    def update(state, *arguments, real=loop.update):
        if fails and state.step == 6:
            raise RuntimeError("out of memory")
        return real(state, *arguments)

    loop.update = update
    train_along(team, configs[:1], 1, store, False)
    torch.distributed.barrier()
    train_along(team, configs, 1, store, False)
"""


def two_ranks(folder, configs, fails=False):
    """Start two processes as ``torchrun`` does: exit status, output and errors of each."""
    script = folder / "rank.py"
    script.write_text(RANK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {
        "PYTHONPATH": str(paths.root()),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
    }
    command = [
        sys.executable,
        str(script),
        str(fails),
        json.dumps([to_dict(config) for config in configs]),
        str(folder),
    ]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = [
        subprocess.Popen(command, env=environment | {"RANK": rank, "LOCAL_RANK": rank}, **pipes)
        for rank in "01"
    ]
    said = [process.communicate(timeout=300) for process in started]
    return [process.returncode for process in started], *zip(*said, strict=True)


def test_two_ranks_have_the_gradients_of_one_stop_together_and_go_on(small_run, tmp_path):
    configs = [small_run("entp"), small_run("decoder")]
    status, out, errors = two_ranks(tmp_path, configs)
    assert status == [0, 0], errors
    for config in configs:  # before they are trained
        task = build_task(config.task, config.task_params)
        model = build_model(config.model, 1)
        batch = task.batch(generator_for("cpu", "ranks"), 5)
        loss = accumulate_gradients(model, task, batch, len(batch.targets_N), "fp32")
        found = torch.load(tmp_path / f"{config.model.architecture}.pt", weights_only=True)
        expected = [loss, *(p.grad for p in model.parameters())]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert out[0].split() == ["5"]
    store = Store(tmp_path, read_only=True)
    for config in configs:
        record = store.find(config, 1)
        alone = train_run(config).state.curves
        assert record.provenance["ranks"] == 2
        for name in alone.keys() - {"seconds"}:
            assert record.curves[name] == pytest.approx(alone[name], rel=1e-3)


def test_a_rank_that_fails_ends_all_and_says_why(small_run, tmp_path):
    status, _, errors = two_ranks(tmp_path, [small_run("decoder")], fails=True)
    assert status == [1, 1]
    assert "rank 1 of 2: RuntimeError: out of memory; all ranks end" in errors[1]
    assert "rank 0 of 2: " in errors[0]
    assert "all ranks end" in errors[0]
