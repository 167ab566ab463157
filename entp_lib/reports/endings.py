"""How a command ends: whatever happens is a line on stderr and an exit status, never a traceback of the user's."""

import logging
import os
import signal
import sys
from collections.abc import Callable

from entp_lib.records import stopping
from entp_lib.records.stopping import Terminated
from entp_lib.records.store import RecordError
from entp_lib.validation import ConfigError, printable

MISTAKE = 2
log = logging.getLogger(__name__)


def exit_status(command: Callable[[], int]) -> int:
    """What ``command`` returns; after a line on stderr 2 for a mistake or a disk, 128 + the signal that ended it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without the signs of a table shows others
    try:
        with stopping.handled():
            status = command()
            sys.stdout.flush()
        return status
    except (ConfigError, RecordError) as error:
        print(printable(f"entp_lib: {error}"), file=sys.stderr)
        return MISTAKE
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(printable(f"entp_lib: {error.strerror or error}{where}"), file=sys.stderr)
        log.debug("where it was", exc_info=True)
        return MISTAKE
    except KeyboardInterrupt as interrupt:
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # else the notebook's abandoned cell is reported too
        print(
            "\nstopped; finished records are kept, and the same command continues from the last checkpoint",
            file=sys.stderr,
        )
        return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)
