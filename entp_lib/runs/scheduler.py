"""A cluster's scheduler: where it is, in one form, and beginning one. Needs the extra ``cluster``.

``tls://HOST:PORT`` is a scheduler that runs already, ``local:4`` so many processes of this machine,
``slurm:partition=gpu,gpus=1,workers=8`` jobs of a queue. Dask's protocol runs what it is sent, so that a connection
leaves this machine as TLS or not at all.
"""

import contextlib
import importlib
import ipaddress
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from entp_lib.strict import ConfigError, one_of, require

FORMS = "write tls://HOST:PORT, tcp://127.0.0.1:PORT, local:4, or slurm:partition=gpu,gpus=1 (docs/scale.md)"
SLURM = {"partition": "", "account": "", "gpus": "0", "workers": "4", "cores": "1", "memory": "8GB", "time": "04:00:00"}
CONNECT_SECONDS = 10.0


def parsed(where: str) -> tuple[str, dict[str, str]]:
    """(``address``, ``local`` or ``slurm``) and its options; ConfigError for anything else."""
    kind, _, rest = where.partition(":")
    if kind in ("tls", "tcp"):
        check_address(where)
        return "address", {"address": where}
    if kind == "local":
        require(is_number(rest) and int(rest) > 0, f"--cluster {where}: write local:4 for four processes")
        return kind, {"workers": rest}
    require(kind == "slurm", f"--cluster {where}: {FORMS}")
    options = dict(SLURM)
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        one_of(f"--cluster {where}: option", name, SLURM)
        require(bool(value), f"--cluster {where}: option {name} has no value; write {name}=...")
        options[name] = value
    right = re.fullmatch(r"\d+:\d\d:\d\d", options["time"]) is not None
    require(right, f"--cluster {where}: option time = {options['time']!r} must be HH:MM:SS")
    for name in ("gpus", "workers", "cores"):
        least = 0 if name == "gpus" else 1
        right = is_number(options[name]) and int(options[name]) >= least
        require(right, f"--cluster {where}: option {name} = {options[name]!r} must be a whole number from {least} on")
    right = re.fullmatch(r"\d+(\.\d+)? ?[KMGT]i?B", options["memory"], re.ASCII) is not None
    require(right, f"--cluster {where}: option memory = {options['memory']!r} must be like 8GB")
    return kind, options


def is_number(text: str) -> bool:
    """Whether a text is a whole number in plain digits."""
    return text.isascii() and text.isdigit()


def check_address(address: str) -> None:
    """ConfigError for an address without a port, or one off this machine that is not TLS."""
    kind, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    require(bool(host) and is_number(port), f"--cluster {address}: write {kind}://HOST:PORT")
    try:
        near = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        near = False
    require(
        kind == "tls" or near,
        f"--cluster {address}: a connection off this machine must be TLS (tls://{place}), as whoever can speak to it "
        "can run code; or reach it through ssh -L (docs/scale.md)",
    )


@contextlib.contextmanager
def started(kind: str, options: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Address and security of a cluster, ended with the block where it is begun here."""
    if kind == "address":
        yield options["address"], security_of(options["address"])
        return
    if kind == "local":
        cluster = local_cluster(int(options["workers"]))
    else:
        cluster = slurm_cluster(options)
        cluster.scale(jobs=int(options["workers"]))
    try:
        yield cluster.scheduler_address, getattr(cluster, "security", None)
    finally:
        with contextlib.suppress(Exception):  # jobs that have ended by themselves need no ending
            cluster.close(timeout=10)


def security_of(address: str) -> Any:
    """What Dask's configuration says of TLS; ConfigError where a tls:// address needs it and it says nothing."""
    if not address.startswith("tls://"):
        return None
    security = library("distributed").Security(require_encryption=True)
    missing = [name for name in ("tls_ca_file", "tls_client_key", "tls_client_cert") if not getattr(security, name)]
    require(
        not missing,
        f"--cluster {address}: Dask's configuration has no {', '.join(missing)} (distributed.comm.tls; docs/scale.md)",
    )
    return security


def local_cluster(workers: int) -> Any:
    """So many processes of this machine, one run each, that only this machine can speak to."""
    return library("distributed").LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,  # Dask would end a worker at a share of it
        silence_logs=logging.ERROR,
    )


def slurm_cluster(options: dict[str, str]) -> Any:
    """A scheduler here, over TLS, and jobs of one worker each; anything richer stands in Dask's jobqueue.slurm."""
    jobqueue, distributed, _ = (library(name) for name in ("dask_jobqueue", "distributed", "cryptography"))
    directives = [f"--gres=gpu:{options['gpus']}"] if options["gpus"] != "0" else []
    return jobqueue.SLURMCluster(
        queue=options["partition"] or None,
        account=options["account"] or None,
        cores=1,
        processes=1,
        job_cpu=int(options["cores"]),
        memory=options["memory"],
        walltime=options["time"],
        job_extra_directives=directives,
        worker_extra_args=["--lifetime", f"{lifetime(options['time'])}s"],
        protocol="tls://",
        security=distributed.Security.temporary(),
        shared_temp_directory=str(Path.home()),  # where jobs read their certificates, by their owner alone
        scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # it has no TLS
    )


def lifetime(limit: str) -> int:
    """Seconds after which a worker hands its run over, five minutes before its job's time limit ("HH:MM:SS")."""
    hours, minutes, seconds = map(int, limit.split(":"))
    return max(60, 3600 * hours + 60 * minutes + seconds - 300)


def check_listening(address: str) -> None:
    """ConfigError at once where nothing listens at an address."""
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--cluster {address}: nobody listens there ({words(error)})") from error


def library(name: str) -> Any:
    """A package of the extra; ConfigError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        install = ".venv/bin/python -m pip install -e '.[cluster]'"
        raise ConfigError(f"--cluster needs the package {error.name}: {install}") from error


def words(error: BaseException) -> str:
    """An error in a line."""
    text = getattr(error, "strerror", None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
