"""A Dask cluster: how it is named, and with real processes that workers may die and nothing is computed twice."""

import concurrent.futures as cf
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from made_up import timeless, wait_for

from entp_lib import paths
from entp_lib.config import config_id
from entp_lib.records import cluster
from entp_lib.records.store import CLUSTER_VARIABLE, Store
from entp_lib.records.sweeps import SweepError, sweep
from entp_lib.validation import ConfigError

dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="needs distributed: pip install -e '.[cluster]'"
)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "write tls://HOST:PORT"),
        ("10.0.0.1:8786", "write tls://HOST:PORT"),
        ("tcp://10.0.0.5:8786", r"must be TLS \(tls://10.0.0.5:8786\)"),
        ("tls://login.example", "write tls://HOST:PORT"),
        ("slurm:", "write slurm:8"),
        ("slurm:partition=gpu", "write slurm:8 .* Dask's configuration"),
    ],
)
def test_a_place_that_is_none_is_named(where, message):
    with pytest.raises(ConfigError, match=message):
        cluster.check_place(where)


def test_places_that_are_some():
    for address in ("tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://localhost:8786", "tls://login.example:8786"):
        cluster.check_place(address)
    cluster.check_place("pbs:12")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"--cluster needs the package distributed: .* pip install -e '.\[cluster\]'"):
        with cluster.connected("slurm:2"):
            pass


def test_workers_of_other_versions_or_of_several_runs_are_refused():
    def worker(nthreads):
        return SimpleNamespace(state=SimpleNamespace(nthreads=nthreads))

    cluster.check(cluster.versions(), worker(1))
    for name in cluster.versions():
        with pytest.raises(ConfigError, match=f"it has {name}.*, not 0"):
            cluster.check(cluster.versions() | {name: "0"}, worker(1))
    with pytest.raises(ConfigError, match="computes 4 runs at a time in one process: start it with --nthreads 1"):
        cluster.check(cluster.versions(), worker(4))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@dask
def test_an_address_where_nobody_listens_is_a_line(small_run, store):
    with pytest.raises(ConfigError, match=r"--cluster tcp://127.0.0.1:\d+: no scheduler answers there"):
        sweep([small_run()], 1, store=store, cluster=f"tcp://127.0.0.1:{free_port()}")


PRELOAD = """\
import os, time
from entp_lib.records import resuming
from entp_lib.training import loop

loop.CHECKPOINT_SECONDS = 0.2

def note(*words):
    with open({log!r}, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def train(config, real=resuming.train, **options):
    note("begin", config.model_seed, os.getpid())
    if config.model_seed == 13:
        time.sleep(0.2)
        os._exit(1)
    done = real(config, **options)
    note("end", config.model_seed, os.getpid())
    return done

if resuming.train.__module__ == "entp_lib.training.loop":  # a worker may load this twice
    resuming.train = train
"""


class Workers:
    """A scheduler and two workers as real processes, and the log of what they train."""

    def __init__(self, folder):
        self.log, port = folder / "log", free_port()
        (folder / "preload.py").write_text(PRELOAD.format(log=str(self.log)))
        self.address, self.processes = f"tcp://127.0.0.1:{port}", []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(paths.root()), *sys.path[1:]])}
        environment |= {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1", "OMP_NUM_THREADS": "1"}
        place = ["--host", "127.0.0.1", "--no-dashboard"]
        worker = [self.address, *place, "--nthreads", "1", "--nworkers", "2", "--memory-limit", "0"]
        worker += ["--preload", str(folder / "preload.py"), "--local-directory", str(folder)]
        for what in (["scheduler", "--port", str(port), *place], ["worker", *worker]):
            command = [sys.executable, "-m", "distributed.cli.dask_" + what[0], *what[1:]]
            with (folder / f"{what[0]}.log").open("a") as log:
                self.processes.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                )
        wait_for(lambda: self.listening(2))

    def listening(self, workers):
        try:
            with cluster.connected(self.address) as executor:
                return len(executor.client.run(os.getpid)) == workers
        except ConfigError as error:
            assert "sources" not in str(error), "the code changed while its tests ran"
            return False

    def said(self):
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def count(self, word, seed):
        return sum(line[:2] == [word, str(seed)] for line in self.said())

    def stop(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.processes = []


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    made = Workers(tmp_path_factory.mktemp("workers"))
    yield made
    made.stop()


def in_thread(function):
    pool = cf.ThreadPoolExecutor(1)
    future = pool.submit(function)
    pool.shutdown(wait=False)
    return future


LONG = dict(steps=120, eval_every=60)


@dask
def test_a_killed_worker_is_replaced_and_nothing_is_computed_twice(workers, small_run, store, tmp_path):
    configs = [small_run("entp", seed, **LONG) for seed in range(4)]
    going = in_thread(lambda: sweep(configs, 1, store=store, cluster=workers.address))
    saved = {str(c.model_seed): store.checkpoint_path("test", config_id(c, 1)) for c in configs}

    def cut():
        """Kill a worker whose run has a checkpoint and has not ended."""
        begun = [(seed, process) for word, seed, process in workers.said() if word == "begin"]
        for process in (p for seed, p in begun if saved[seed].exists() and not workers.count("end", seed)):
            os.kill(int(process), signal.SIGKILL)
            return True
        return False

    wait_for(cut)
    done = going.result(timeout=600)
    alone = sweep(configs, 1, store=Store(tmp_path / "alone", read_only=False), jobs=1)
    assert timeless(done.records) == timeless(alone.records)
    begun = {seed: workers.count("begin", seed) for seed in range(4)}
    assert sorted(begun.values()) == [1, 1, 1, 2] and all(workers.count("end", seed) == 1 for seed in range(4))
    again = done.records[max(begun, key=begun.get)].provenance
    assert len(again["earlier_processes"]) == 1 and store.all("test") == sorted(done.records, key=lambda r: r.id)


@dask
def test_a_run_that_kills_its_workers_is_told_in_words_and_the_others_are_kept(workers, small_run, store):
    configs = [small_run("decoder", seed) for seed in (13, 21, 22)]
    with pytest.raises(SweepError, match=r"1 of 3 runs failed:\n  test decoder, seed 13: KilledWorker: .*2 different"):
        sweep(configs, 1, store=store, cluster=workers.address)
    assert len(store.all("test")) == 2 and workers.count("begin", 13) == 2


@dask
def test_an_interrupted_sweep_leaves_nothing_computing(workers, small_run, store, monkeypatch):
    """Ctrl-C: the run stops behind a step, with its checkpoint, though it had minutes to go."""
    config = small_run("entp", 41, steps=100_000, eval_every=1000)
    checkpoint = store.checkpoint_path("test", config_id(config, 1))
    main = threading.Event()

    def update(self, **_):
        if checkpoint.exists() and not main.is_set():
            main.set()
            raise KeyboardInterrupt

    monkeypatch.setattr("entp_lib.records.progress.Meter.update", update)
    with pytest.raises(KeyboardInterrupt):
        sweep([config], 1, store=store, cluster=workers.address)
    wait_for(lambda: store.find(config, 1) is not None)
    assert store.find(config, 1).status == "partial" and workers.count("end", 41) == 1


@dask
def test_jobs_of_a_queue_are_reached_over_tls(small_run, store, monkeypatch):
    pytest.importorskip("cryptography", reason="needs cryptography: pip install -e '.[cluster]'")
    import distributed

    def queue(cores, processes, shared_temp_directory, scheduler_options, **rest):
        place = dict(host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50)
        made = distributed.LocalCluster(n_workers=0, threads_per_worker=cores, **place, **rest)
        made.scale = lambda jobs: distributed.LocalCluster.scale(made, jobs)
        return made

    real = cluster.library
    monkeypatch.setattr(
        cluster, "library", lambda name: SimpleNamespace(SLURMCluster=queue) if name == "dask_jobqueue" else real(name)
    )
    monkeypatch.setenv(CLUSTER_VARIABLE, "slurm:1")
    assert sweep([small_run()], 1, store=store).computed == 1
