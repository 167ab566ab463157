"""Kernels that are forked from one process, which has imported once what every notebook imports."""

import contextlib
import gc
import importlib.metadata
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from typing import Any
from unittest import mock

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

NAME = "forked"
INLINE = "module://matplotlib_inline.backend_inline"
SHARED = "entp_lab.experiment entp_lab.figures ipykernel.kernelapp scipy.stats"


@contextlib.contextmanager
def forked_kernels(environment: Mapping[str, str]) -> Iterator[None]:
    """Within this kernels are forked; ``environment``: what they have beside this process's own at imports."""
    factory, context = KernelProvisionerFactory.instance(), multiprocessing.get_context("forkserver")
    before, factory.default_provisioner_name = factory.default_provisioner_name, NAME
    entry = importlib.metadata.EntryPoint(NAME, f"{__name__}:Forked", "jupyter_client.kernel_provisioners")
    factory.provisioners[NAME] = entry
    context.set_forkserver_preload(SHARED.split())
    with mock.patch.dict(os.environ, {"MPLBACKEND": INLINE, **environment}):
        forkserver.ensure_running()
    try:
        yield
    finally:
        factory.default_provisioner_name = before


def main(arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    """A kernel by its command's arguments, with this environment, in this folder and a session of its own."""
    import pandas as pd
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    gc.set_threshold(100_000)  # figures are many small objects, few of them in circles: a tenth of the time
    app = IPKernelApp.instance(parent_handle=os.getppid())  # with which it ends
    app.initialize([*arguments])
    app.shell.enable_matplotlib("inline")  # matplotlib and pandas were imported where there was no kernel,
    pd.set_option("display.max_columns", 20)  # and have settings of their own for one
    app.start()


class Process:
    """A forked kernel, as ``subprocess.Popen`` shows its processes."""

    stdin = stdout = stderr = None

    def __init__(self, *arguments: Any):
        self.process = multiprocessing.get_context("forkserver").Process(target=main, args=arguments)
        self.process.start()
        self.pid, self.kill, self.terminate = self.process.pid, self.process.kill, self.process.terminate

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.poll()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Forked(LocalProvisioner):
    """Starts kernels so; all else is as for one that is started by its command."""

    async def launch_kernel(self, cmd: Sequence[str], **options: Any) -> dict[str, Any]:
        self.process = Process(cmd[cmd.index("-m") + 2 :], options["env"], options.get("cwd") or os.getcwd())
        self.pid = self.pgid = self.process.pid
        return self.connection_info
