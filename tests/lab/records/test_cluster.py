"""A Dask cluster of two real workers on this machine: what it computes, and what a killed worker
costs.
"""

import concurrent.futures as cf
import importlib.util
import os
import signal
import sys

import pytest
from made_up import checkpoint_step, swept, timeless, wait_for
from mistakes import refused

from entp_lab import cluster
from entp_lab.configs import record_name
from entp_lab.runs import SweepError, execute, sweep
from entp_lab.store import CLUSTER_VARIABLE

dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="needs distributed: pip install -e '.[cluster]'",
)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with refused(
        r"--cluster needs the package distributed: .* pip install -e '.\[cluster\]'",
    ):
        with cluster.connected("tcp://127.0.0.1:8786"):
            pass


@dask
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "slurm:8", "127.0.0.1"])
def test_an_address_where_nobody_listens_is_a_line(small_run, store, address, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with refused(f"^--cluster {address}: no scheduler answers there.*$"):
        sweep([small_run()], 1, store=store, cluster=address)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A scheduler and two worker processes, which write a checkpoint after every step."""
    import dask.config as dask_config
    import distributed

    folder = tmp_path_factory.mktemp("workers")
    (folder / "preload.py").write_text(
        "from entp_lab import resume\nresume.CHECKPOINT_SECONDS = 0.0\n"
    )
    # until a killed one is back
    patient = dask_config.set({"distributed.deploy.lost-worker-timeout": "240s"})
    with (
        patient,
        distributed.LocalCluster(
            2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=50,
            local_directory=str(folder),
            preload=[str(folder / "preload.py")],
            scheduler_kwargs={"allowed_failures": 1},
        ) as started,
    ):
        started.wait_for_workers(2, timeout=240)
        yield started


def busy(workers):
    """The process ids of workers that have a run."""
    pids = {nanny.worker_address: nanny.pid for nanny in workers.workers.values()}
    return {
        pids[w.address]
        for w in list(workers.scheduler.workers.values())
        if w.processing and w.address in pids
    }


@dask
@pytest.mark.parametrize(("kills", "steps"), [(1, 300), (2, 100_000)])
def test_a_killed_workers_run_is_computed_again_or_told_in_a_line(
    workers, small_run, store, apart, kills, steps
):
    long = small_run("entp", 10 * kills, steps=steps, eval_every=steps // 3)
    short = [small_run("decoder", 10 * kills + seed) for seed in (1, 2)]
    checkpoint = store.checkpoint_path(record_name(long, 1))
    killed = set()
    workers.wait_for_workers(2, timeout=240)

    def only_the_long_one_goes_on():
        found = busy(workers) - killed
        return (
            len(found) == 1
            and checkpoint.exists()
            and len(list(store.root.glob("records/test/*.json"))) == 2
        )

    with cf.ThreadPoolExecutor(1) as pool:
        going = pool.submit(
            sweep, [long, *short], 1, store=store, cluster=workers.scheduler_address
        )
        while len(killed) < kills:
            wait_for(lambda: going.done() or only_the_long_one_goes_on())
            assert not going.done(), "it ended before its worker was killed"
            (process,) = busy(workers) - killed
            os.kill(process, signal.SIGKILL)
            killed.add(process)
        if kills == 1:
            done = going.result()
            alone = swept([long, *short], apart)
            assert timeless(*done.complete) == timeless(*alone.complete)
            assert len(done.complete[0].provenance["earlier_processes"]) == 1
            return
        with pytest.raises(
            SweepError, match=r"^1 of 3 runs failed:\n  test entp, seed 20: KilledWorker: .*$"
        ) as error:
            going.result()
    assert error.value.report == str(error.value)  # a worker that dies is no mistake of code
    assert len(store.all("test")) == 2
    assert checkpoint_step(checkpoint) > 0  # from which the same command goes on


@dask
def test_an_interrupted_sweep_leaves_nothing_computing(workers, small_run, store, monkeypatch):
    """Ctrl-C: the run stops after a step, with its checkpoint, though it had minutes to go."""
    config = small_run("entp", 41, steps=100_000, eval_every=1000)
    checkpoint = store.checkpoint_path(record_name(config, 1))

    def interrupt(self, **_):
        if checkpoint.exists():
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr("entp_lab.progress.Meter.update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sweep([config], 1, store=store, cluster=workers.scheduler_address)
    wait_for(lambda: not busy(workers))
    assert 0 < checkpoint_step(checkpoint) < 100_000


@dask
def test_the_environment_names_a_cluster(workers, small_run, store, monkeypatch):
    monkeypatch.setenv(CLUSTER_VARIABLE, "")
    cluster.publish(workers.scheduler_address)
    monkeypatch.setattr("entp_lab.runs.worker_processes", lambda *_: pytest.fail("computed here"))
    assert sweep([small_run(seed=51)], 1, store=store).reused == 0


def test_a_worker_that_does_not_see_the_results_says_so(small_run, store):
    with refused("does not see .*: all need the results on one disk"):
        execute(small_run(), 1, 0, {"store": store})
