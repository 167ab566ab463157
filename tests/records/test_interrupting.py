"""An interrupt of a sweep is one line, leaves no worker with a traceback, and costs no more than a step."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from entp_lib import paths
from entp_lib.config import config_id, to_dict
from entp_lib.records.store import Store
from entp_lib.records.sweeps import sweep

SCRIPT = """
import json, sys
from entp_lib.config import config_from
from entp_lib.records.sweeps import sweep
from entp_lib.training import loop

loop.CHECKPOINT_SECONDS = 0.1  # workers load this file too
if __name__ == "__main__":
    sweep([config_from(c) for c in json.loads(sys.argv[1])], 1, jobs=2)
"""


@pytest.fixture
def interrupted(small_run, tmp_path):
    """What a script wrote whose sweep of two long runs got SIGINT with all its processes, and the runs."""
    configs = [small_run("entp", seed, steps=50_000, eval_every=10_000) for seed in (0, 1)]
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(paths.root()), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    environment |= {"ENTP_RESULTS": str(tmp_path / "results"), "ENTP_RECORDS": ""}
    command = [sys.executable, str(script), json.dumps([to_dict(c) for c in configs])]
    process = subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    )
    try:
        begun = time.monotonic()
        while len(list(tmp_path.glob("results/checkpoints/test/*.safetensors"))) < 2:
            assert process.poll() is None and time.monotonic() - begun < 300
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        return configs, process.communicate(timeout=300)[1], Store(tmp_path / "results", read_only=False)
    finally:
        if process.poll() is None:  # cut or failed: its workers too
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_an_interrupted_sweep_leaves_checkpoints_and_one_message(interrupted):
    configs, said, store = interrupted
    assert said.count("Traceback") == 1 and said.strip().splitlines()[-1].startswith(
        "entp_lib.records.stopping.Stopped:"
    )
    assert "Stopped: 0 of 2 runs are complete and kept; run it again" in said
    for config in configs:
        assert store.checkpoint_path("test", config_id(config, 1)).exists()
    steps = [r.provenance["steps"] for r in sweep(configs, 1, store=store, jobs=1, time_limit=1e-6).records]
    assert all(0 < step < 50_000 for step in steps)  # they go on from where they were
