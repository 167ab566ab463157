"""Fork kernels from one process, which has imported once what every notebook imports.

The imports are half of what `./run_all.sh` takes from stored records.
"""

import contextlib
import gc
import importlib.metadata
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

NAME = "forked"
INLINE = "module://matplotlib_inline.backend_inline"
SHARED = ["entp_lab.experiment", "entp_lab.figures", "ipykernel.kernelapp", "scipy.stats"]


@contextlib.contextmanager
def forked_kernels(environment: Mapping[str, str]) -> Iterator[None]:
    """Within this block fork kernels from a process that has made its imports in this environment."""
    factory = KernelProvisionerFactory.instance()
    usual = factory.default_provisioner_name
    place = f"{__name__}:Forked"
    factory.provisioners[NAME] = importlib.metadata.EntryPoint(NAME, place, "jupyter_client.kernel_provisioners")
    factory.default_provisioner_name = NAME
    multiprocessing.get_context("forkserver").set_forkserver_preload(SHARED)
    own = dict(os.environ)
    become({**environment, "MPLBACKEND": INLINE})
    try:
        forkserver.ensure_running()
    finally:
        become(own)
    try:
        yield
    finally:
        factory.default_provisioner_name = usual


def become(environment: Mapping[str, str]) -> None:
    """Put these variables in the place of this process's own."""
    os.environ.clear()
    os.environ.update(environment)


def main(arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    """Be a kernel by its command's arguments, with this environment, in this folder and a session of its own."""
    import pandas as pd
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    become(environment)
    os.chdir(folder)
    gc.set_threshold(100_000)  # figures are many small objects, few of them in circles: a tenth of the time
    app = IPKernelApp.instance(parent_handle=os.getppid())  # with which it ends
    app.initialize([*arguments])
    shell: Any = app.shell
    shell.enable_matplotlib("inline")  # matplotlib and pandas were imported where there was no kernel,
    pd.set_option("display.max_columns", 20)  # and have settings of their own for one
    app.start()


class Process:
    """A forked kernel, as ``subprocess.Popen`` shows its processes."""

    stdin = stdout = stderr = None

    def __init__(self, *arguments: Any):
        self.process = multiprocessing.get_context("forkserver").Process(target=main, args=arguments)
        self.process.start()
        self.pid = self.process.pid
        self.kill = self.process.kill
        self.terminate = self.process.terminate

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self.process.exitcode

    def wait(self) -> int | None:
        """Wait for its end and return the exit status."""
        self.process.join()
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.pid is not None:
            os.kill(self.pid, number)


class Forked(LocalProvisioner):
    """Start kernels by a fork; all else is as for one that is started by its command."""

    async def launch_kernel(self, cmd: Sequence[str], **options: Any) -> Any:
        """Fork a kernel with the arguments of this command."""
        arguments = cmd[cmd.index("-m") + 2 :]
        process: Any = Process(arguments, options["env"], options.get("cwd") or os.getcwd())
        self.process = process
        self.pid = self.pgid = process.pid
        return self.connection_info
