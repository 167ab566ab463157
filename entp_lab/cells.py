"""Execute the cells of a notebook in this process, as a papermill engine.

The outputs equal those of a kernel, without its start, sockets and messages. Every executed notebook still needs a
process of its own, which ``notebooks`` forks from one that has the imports.
"""

import base64
import contextlib
import gc
import io
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.engines import Engine
from traitlets.config import Config

ENGINE = "in this process"


def bundle(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an output as a notebook stores them, with images in base64."""
    return {
        kind: base64.b64encode(d).decode() if isinstance(d, bytes) else d
        for kind, d in data.items()
    }


class Publisher(DisplayPublisher):
    """Collects what ``display`` and ``plt.show`` show."""

    def publish(self, data: Any, metadata: Any = None, source: Any = None, **_: Any) -> None:
        """Append an output to those of the cell."""
        self.shell.outputs.append(new_output("display_data", bundle(data), metadata=metadata or {}))


class Result(DisplayHook):
    """Collects the value of a cell's last line."""

    def write_output_prompt(self) -> None:
        """Write no prompt: the notebook numbers its cells."""

    def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
        """Append the value to the cell's outputs."""
        shell: Any = self.shell
        data = bundle(format_dict)
        output = new_output(
            "execute_result", data, metadata=md_dict or {}, execution_count=self.prompt_count
        )
        shell.outputs.append(output)

    def finish_displayhook(self) -> None:
        """End without an empty line."""
        self._is_active = False


class Stream(io.TextIOBase):
    """Collects what a cell prints, in order with its other outputs."""

    def __init__(self, shell: "Shell", name: str):
        self.shell = shell
        self.name = name

    def write(self, text: str) -> int:
        """Append to the last output if it is of the same stream, else start a new one."""
        outputs = self.shell.outputs
        if text:
            if not (outputs and outputs[-1].get("name") == self.name):
                outputs.append(new_output("stream", name=self.name, text=""))
            outputs[-1]["text"] += text
        return len(text)


class Shell(InteractiveShell):
    """IPython without a terminal, which collects the outputs of a notebook's cells."""

    outputs: list[NotebookNode]

    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing: pictures are inline."""

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        self.outputs.append(
            new_output("error", ename=etype.__name__, evalue=str(evalue), traceback=stb)
        )

    def run(self, source: str) -> list[NotebookNode]:
        """Run a cell and return its outputs, the last one an error if it failed. An interrupt is raised again."""
        self.outputs = []
        with (
            contextlib.redirect_stdout(Stream(self, "stdout")),
            contextlib.redirect_stderr(Stream(self, "stderr")),
        ):
            done = self.run_cell(source, store_history=True)
        if isinstance(done.error_in_exec, KeyboardInterrupt):
            raise done.error_in_exec
        return self.outputs


class Here(Engine):
    """Papermill engine that runs in this process, once per process."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: Any) -> None:
        """Run the cells in order, up to the first that fails; pictures and tables are shown as a kernel does."""
        import pandas as pd

        # figures are many small objects and few reference cycles: rare collection takes a tenth of the time
        gc.set_threshold(100_000)
        pd.set_option("display.max_columns", 20)  # pandas' default in a kernel
        config = Config({"HistoryManager": {"enabled": False}})
        shell = Shell.instance(config=config, display_pub_class=Publisher, displayhook_class=Result)
        shell.enable_matplotlib("inline")
        for index, cell in enumerate(nb_man.nb.cells):
            nb_man.cell_start(cell, index)
            if cell.cell_type == "code" and cell.source.strip():
                cell.outputs = shell.run(cell.source)
                cell.execution_count = shell.execution_count - 1
                if any(output.output_type == "error" for output in cell.outputs):
                    nb_man.cell_exception(cell, index)
                    break
            nb_man.cell_complete(cell, index)
