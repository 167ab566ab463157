"""A Dask cluster: how it is named, and with real processes that workers may die and nothing is computed twice."""

import concurrent.futures as cf
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from entp_lib import paths
from entp_lib.config import config_id
from entp_lib.records import cluster
from entp_lib.records.store import Store
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
        ("local:", "write local:4"),
        ("slurm:partion=gpu", "did you mean 'partition'"),
        ("slurm:partition", "option partition = '' must be a text"),
        ("slurm:memory=lots", "option memory = 'lots' must be like 8GB"),
        ("local:²", "write local:4"),
    ],
)
def test_a_specification_that_is_none_is_a_line(where, message):
    with pytest.raises(ConfigError, match=message):
        cluster.parsed(where)


def test_specifications_are_read():
    for address in ("tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://localhost:8786", "tls://login.example:8786"):
        assert cluster.parsed(address) == ("address", {"address": address})
    assert cluster.parsed("local:4") == ("local", {"workers": "4"})
    default = cluster.parsed("slurm:")[1]
    kind, options = cluster.parsed("slurm:partition=gpu,gpus=1,time=01:00:00")
    assert kind == "slurm" and options == {**default, "partition": "gpu", "gpus": "1", "time": "01:00:00"}


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"--cluster needs the package distributed: .* pip install -e '.\[cluster\]'"):
        with cluster.connected("local:2"):
            pass


def test_workers_of_other_versions_or_of_several_runs_are_refused():
    found = {**cluster.versions(), "nthreads": 1}
    cluster.check(found, cluster.versions(), "worker a")
    cluster.check({**found, "torch": "1.0"}, {}, "worker a")  # asked for
    with pytest.raises(ConfigError, match=r"worker a has torch 1.0, not .*--mixed allows it"):
        cluster.check({**found, "torch": "1.0"}, cluster.versions(), "worker a")
    with pytest.raises(ConfigError, match="has sources of entp_lib 0, not"):
        cluster.check({**found, "sources": "0"}, cluster.versions(), "worker a")
    with pytest.raises(ConfigError, match="computes 4 runs at a time in one process: start it with --nthreads 1"):
        cluster.check({**found, "nthreads": 4}, {}, "worker a")


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
from entp_lib.records import cluster, resuming
from entp_lib.records.store import Store
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
if os.path.exists({apart!r}):  # a machine that does not have the caller's folders
    cluster.store_for = lambda root: Store({apart!r}, read_only=False)
"""


class Workers:
    """A scheduler and two workers as real processes, and the log of what they train."""

    def __init__(self, folder, apart=False, parts=2):
        self.folder, self.log = folder, folder / "log"
        self.apart, self.port = folder / "apart", free_port()
        if apart:
            self.apart.mkdir()
        (folder / "preload.py").write_text(PRELOAD.format(log=str(self.log), apart=str(self.apart)))
        self.address, self.processes = f"tcp://127.0.0.1:{self.port}", []
        self.start(parts)

    def start(self, parts=2):
        """Start scheduler and workers, or the scheduler alone."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(paths.root()), *sys.path[1:]])}
        environment |= {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1", "OMP_NUM_THREADS": "1"}
        place = ["--host", "127.0.0.1", "--no-dashboard"]
        worker = [self.address, *place, "--nthreads", "1", "--nworkers", "2", "--memory-limit", "0"]
        worker += ["--preload", str(self.folder / "preload.py"), "--local-directory", str(self.folder)]
        for what in (["scheduler", "--port", str(self.port), *place], ["worker", *worker])[:parts]:
            command = [sys.executable, "-m", "distributed.cli.dask_" + what[0], *what[1:]]
            with (self.folder / f"{what[0]}.log").open("a") as log:
                self.processes.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                )
        wait_for(lambda: self.listening(2 * (parts - 1)))

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


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    made = Workers(tmp_path_factory.mktemp("workers"))
    yield made
    made.stop()


def timeless(records):
    return [(r.id, r.status, r.metrics, {k: v for k, v in r.curves.items() if k != "seconds"}) for r in records]


class Deserted(cluster.Remote):
    """A cluster that takes runs and has nobody to compute them."""

    def __init__(self):
        self.handed_over = []

    def submit(self, fn, /, *arguments, **_):
        self.handed_over.append(cf.Future())
        return self.handed_over[-1]

    def room(self):
        return 2 if len(self.handed_over) < 2 else 0  # they die with the runs

    def shutdown(self, wait=True, *, cancel_futures=False):
        pass


def test_a_cluster_without_workers_is_not_waited_for_beyond_the_time_limit(small_run, store):
    executor, begun = Deserted(), time.monotonic()
    with pytest.raises(SweepError, match="2 of 2 runs failed") as raised:
        sweep([small_run(seed=s) for s in range(2)], 1, store=store, executor=executor, time_limit=1.0)
    assert time.monotonic() - begun > 1.0 and "the cluster has no worker" in str(raised.value)
    assert len(executor.handed_over) == 2 and all(future.cancelled() for future in executor.handed_over)


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
    with pytest.raises(SweepError, match=r"1 of 3 runs failed:\n  test decoder, seed 13: 2 workers died computing it"):
        sweep(configs, 1, store=store, cluster=workers.address)
    assert len(store.all("test")) == 2 and workers.count("begin", 13) == 2


@dask
def test_an_interrupted_sweep_leaves_nothing_computing(workers, small_run, store, monkeypatch):
    """Ctrl-C: the run stops behind a step, with its checkpoint, though it had minutes to go."""
    config = small_run("entp", 41, steps=100_000, eval_every=1000)
    checkpoint = store.checkpoint_path("test", config_id(config, 1))
    main = threading.Event()

    def update(self):
        if checkpoint.exists() and not main.is_set():
            main.set()
            raise KeyboardInterrupt

    monkeypatch.setattr("entp_lib.records.progress.Meter.update", update)
    with pytest.raises(KeyboardInterrupt):
        sweep([config], 1, store=store, cluster=workers.address)
    wait_for(lambda: store.find(config, 1) is not None)
    assert store.find(config, 1).status == "partial" and workers.count("end", 41) == 1


@dask
def test_a_store_that_is_not_shared_and_a_scheduler_that_is_lost(small_run, tmp_path):
    """Records and weights come home; the scheduler dies in the middle, and the same sweep goes on with what is left."""
    workers = Workers(tmp_path, apart=True)
    try:
        store = Store(tmp_path / "results", read_only=False)
        first = small_run("decoder", 51)
        sweep([first], 1, store=store, cluster=workers.address)
        name = f"test/{config_id(first, 1)}"
        assert store.weights_path(*name.split("/")).exists() and store.find(first, 1).status == "complete"
        from dataclasses import replace

        config = small_run("decoder", 52)
        after = [replace(small_run("decoder", 53), start_from=name), replace(config, train=small_run(**LONG).train)]
        going = in_thread(lambda: sweep(after, 1, store=store, cluster=workers.address))
        wait_for(lambda: workers.count("begin", 52))
        workers.stop()
        with pytest.raises(SweepError, match="scheduler was lost; what was saved before is kept"):
            going.result(timeout=600)
        workers.start()
        assert len(sweep(after, 1, store=store, cluster=workers.address).complete) == 2
        assert workers.count("begin", 51) == 1 and workers.count("end", 52) == 1
    finally:
        workers.stop()


@dask
def test_a_cluster_that_a_command_began_is_reached_over_tls_by_what_it_starts(small_run, store, monkeypatch):
    """As ``run_all.sh --cluster slurm:`` has it: notebooks find address and certificate in their environment."""
    pytest.importorskip("cryptography", reason="needs cryptography: pip install -e '.[cluster]'")
    from distributed import LocalCluster, Security

    def local(options):
        place = dict(protocol="tls://", host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50)
        made = LocalCluster(n_workers=1, threads_per_worker=1, security=Security.temporary(), **place)
        made.scale = lambda jobs: None
        return made

    monkeypatch.setattr(cluster, "slurm_cluster", local)
    with cluster.published("slurm:workers=1"):
        assert os.environ[cluster.VARIABLE].startswith("tls://")
        assert sweep([small_run()], 1, store=store).computed == 1
    assert not [name for name in os.environ if name == cluster.VARIABLE or "TLS" in name]
