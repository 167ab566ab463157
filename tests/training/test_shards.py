"""Shards of a batch: every position once, equal work, and the same step from one process or from two."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib import paths
from entp_lib.config import ModelConfig, config_from, config_id, to_dict
from entp_lib.records.execution import run
from entp_lib.records.store import Store
from entp_lib.tasks import Batch
from entp_lib.training import loop
from entp_lib.training.loop import train
from entp_lib.training.shards import cut


def batch_of(wanted_BT):
    inputs_BT = torch.arange(wanted_BT.numel()).view(wanted_BT.shape)
    return Batch(inputs_BT, inputs_BT, wanted_BT)


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 6), st.integers(0, 99), st.booleans())
def test_every_wanted_position_is_in_one_shard(batch, length, shards, seed, entp):
    wanted_BT = torch.rand(batch, length, generator=torch.Generator().manual_seed(seed)) < 0.6
    cfg = ModelConfig("entp" if entp else "decoder", 2, 1, 8, batch * length, length)
    parts = cut(batch_of(wanted_BT), cfg, shards)
    assert len(parts) == shards
    found = torch.cat([p.inputs_BT[p.wanted_BT] for p in parts])
    assert found.tolist() == batch_of(wanted_BT).inputs_BT[wanted_BT].tolist()


def test_shards_of_entp_are_balanced_by_tokens_and_those_of_a_decoder_by_sequences():
    wanted_BT = torch.ones(6, 16, dtype=torch.bool)
    wanted_BT[3:, 4:] = False  # the first three sequences have most of the work
    tokens = torch.arange(1, 17)
    entp = cut(batch_of(wanted_BT), ModelConfig("entp", 2, 1, 8, 96, 16), 2)
    work = [int((p.wanted_BT * tokens).sum()) for p in entp]
    assert abs(work[0] - work[1]) <= 16 and len(entp[0].wanted_BT) == 2 and len(entp[1].wanted_BT) == 5
    decoder = cut(batch_of(wanted_BT), ModelConfig("decoder", 2, 1, 8, 96, 16), 2)
    assert [len(p.wanted_BT) for p in decoder] == [3, 3]


def sharded(config, shards):
    return replace(config, train=replace(config.train, gradient_shards=shards))


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_shards_give_the_step_of_the_whole_batch_but_for_rounding(small_run, architecture):
    config = small_run(architecture, grad_clip=1.0)
    whole, parts = train(config), train(sharded(config, 3))
    for name in whole.state.curves.keys() - {"seconds"}:
        assert parts.state.curves[name] == pytest.approx(whole.state.curves[name], rel=1e-3)
    assert config_id(config, 1) != config_id(sharded(config, 3), 1)
    assert "gradient_shards" not in to_dict(config)["train"]  # records that exist keep their names
    assert config_from(to_dict(sharded(config, 3))) == sharded(config, 3)


RANK = """\
import json, os, sys
from entp_lib.config import config_from
from entp_lib.records import ranks, stopping
from entp_lib.records.execution import run
from entp_lib.records.store import Store
from entp_lib.training import loop

loop.CHECKPOINT_SECONDS = float(sys.argv[4])
fault = sys.argv[3]

def optimise(*arguments, real=loop.optimise):
    step = arguments[5]
    if fault == f"die {os.environ['RANK']}" and step == 5:
        os.kill(os.getpid(), 9)
    if fault == f"raise {os.environ['RANK']}" and step == 5:
        raise RuntimeError("out of memory")
    return real(*arguments)

loop.optimise = optimise
if __name__ == "__main__":
    with stopping.handled(), ranks.team() as team:
        if not team.leads:
            sys.exit(team.follow())
        for config in json.loads(sys.argv[1]):
            print(run(config_from(config), 1, store=Store(sys.argv[2], read_only=False)).status, flush=True)
"""


class Started:
    """Two processes as ``torchrun`` starts them."""

    def __init__(self, folder, configs, store, fault="none", checkpoint_seconds=60):
        script = folder / "rank.py"
        script.write_text(RANK)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment = {**os.environ, "PYTHONPATH": str(paths.root()), "OMP_NUM_THREADS": "1"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        plain = json.dumps([to_dict(config) for config in configs])
        command = [sys.executable, str(script), plain, str(store), fault, str(checkpoint_seconds)]
        self.processes = [
            subprocess.Popen(
                command,
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]

    def wait(self):
        said = [process.communicate(timeout=300) for process in self.processes]
        return [p.returncode for p in self.processes], [out for out, _ in said], [error for _, error in said]


def bits(store, config):
    """Weights, curves and scores of a run, times aside."""
    record = store.find(config, 1)
    weights = safetensors.torch.load_file(store.weights_path("test", record.id))
    weights = {name: w.numpy().tobytes() for name, w in weights.items()}
    curves = {name: curve for name, curve in record.curves.items() if name != "seconds"}
    return weights, record.metrics, curves


def test_two_ranks_leave_what_one_process_leaves_bit_for_bit(small_run, store, tmp_path, monkeypatch):
    """A whole run, and one with dropout and clipping in which SIGTERM, as a scheduler sends it, comes to both."""
    whole = sharded(small_run("decoder"), 2)
    cut = sharded(small_run("entp", steps=150, eval_every=50, grad_clip=1.0, model={"dropout": 0.1}), 2)
    two = Store(tmp_path / "two", read_only=False)
    ranks = Started(tmp_path, [whole, cut], two.root, checkpoint_seconds=0.0)
    end = time.monotonic() + 200
    while not two.checkpoint_path("test", config_id(cut, 1)).exists():
        assert time.monotonic() < end and all(p.poll() is None for p in ranks.processes)
        time.sleep(0.02)
    for process in ranks.processes:
        process.send_signal(signal.SIGTERM)
    status, out, errors = ranks.wait()
    assert status[0] != 0 and out[0].startswith("complete"), errors
    partial = two.find(cut, 1)
    assert partial.status == "partial" and 0 < partial.provenance["steps"] < 150
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 60)
    assert run(cut, 1, store=two).status == "complete"  # by one process: a checkpoint does not know how many
    for config in (whole, cut):
        run(config, 1, store=store)
        assert bits(two, config) == bits(store, config)
    assert two.find(whole, 1).provenance["ranks"] == 2 and "ranks" not in store.find(whole, 1).provenance


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise 1", "rank 1 of 2: RuntimeError: out of memory"),
        pytest.param("die 1", "", marks=pytest.mark.live),  # killed: the line is that of whoever misses it
    ],
)
def test_a_rank_that_ends_ends_all_with_its_reason(small_run, tmp_path, fault, reason):
    configs = [sharded(small_run("decoder"), 2)]
    began = time.monotonic()
    status, _, errors = Started(tmp_path, configs, tmp_path / "two", fault).wait()
    assert status[0] == 1 and status[1] != 0 and time.monotonic() - began < 250
    assert reason in errors[1] and "all ranks end" in errors[0]
