"""Options that several commands share, and how every command ends. Imports nothing that is slow."""

import argparse
import logging
import math
import os
import re
import signal
import sys
from collections.abc import Callable

from entp_lib.validation import ConfigError, printable, require


def seconds(text: str | None) -> float:
    """A time limit in seconds from 900, 900s, 15m or 2h; 0 for None."""
    if text is None:
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    require(match is not None, f"time limit {text!r}: write 900, 900s, 15m or 2h")
    found = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
    require(math.isfinite(found), f"time limit {text[:20]}...: write 900, 900s, 15m or 2h")
    return found


def noted_seconds(text: str | None) -> float:
    """``seconds``, saying that 0 means no limit to whoever asks for it."""
    limit = seconds(text)
    if text is not None and not limit:
        print(f"--time-limit {text}: no limit", file=sys.stderr)
    return limit


def check_limits(options: argparse.Namespace) -> None:
    """ConfigError, before a text is read or a run made, for jobs, seeds or a time limit that make no sense."""
    require(options.jobs >= 0, f"--jobs {options.jobs}: must be 0 (one per core) or more")
    check_seeds(getattr(options, "seeds", 0))  # a whole tier has its own, and no such option
    noted_seconds(options.time_limit)


def add_native(parser: argparse.ArgumentParser) -> None:
    """The option of a command that computes to leave instruction sets to the libraries (``entp_lib.arithmetic``)."""
    parser.add_argument(
        "--native", action="store_true", help="compute with this processor's own instruction set, not with AVX2"
    )


def check_seeds(seeds: int) -> None:
    """ConfigError for a number of seeds that no plan takes."""
    from entp_lib.experiments.parameters import MAX_SEEDS

    require(0 <= seeds <= MAX_SEEDS, f"--seeds {seeds}: must be from 0 (the tier's own) to {MAX_SEEDS}")


def add_run_options(parser: argparse.ArgumentParser, *, seeds: int) -> None:
    """The options of a command that trains on the user's own data, ``seeds`` runs of each architecture by default."""
    parser.add_argument("--seeds", type=int, default=seeds, metavar="N", help="runs of each architecture")
    parser.add_argument("--time-limit", metavar="T", help="for all runs together: 900, 900s, 15m or 2h")
    parser.add_argument("--results", metavar="DIR", help="where records go, if not to results/own")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="runs at a time; 0 for one per core")
    parser.add_argument("--fresh", action="store_true", help="compute again what has a record")
    parser.add_argument("--yes", action="store_true", help="start what takes more than an hour without a question")
    add_native(parser)


MISTAKE = 2
log = logging.getLogger(__name__)


def exit_status(command: Callable[[], int]) -> int:
    """Run ``command``: its exit status; after a line on stderr 2 for a mistake or a disk, 128 + n for signal n."""
    from entp_lib.records import stopping
    from entp_lib.records.store import RecordError

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
        return 128 + (signal.SIGTERM if isinstance(interrupt, stopping.Terminated) else signal.SIGINT)
