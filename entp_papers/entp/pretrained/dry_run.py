"""The whole procedure with a provider, on the loopback: what is sent, what comes back, and what troubles look like."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from entp_lib.tasks import Counting
from entp_lib.validation import from_dict, require
from entp_papers.entp.pretrained import chat
from entp_papers.entp.pretrained.loopback import Provider, serving
from entp_papers.entp.pretrained.provider import KEY, FineTuning, ProviderError

KEY_OF_THE_DRY_RUN = "no-key-of-anyone"


def dry_run_study(
    task: dict[str, Any], train: int, test: int, model: str, client: bool = True
) -> tuple[dict[str, Any], dict[str, list]]:
    """Fine-tune and ask ``model`` at a provider on the loopback: (its log, scores, cost), {}.

    In turn: a job that fails, a refused rate, a run killed after the job was started, and one that goes on with it. The
    provider knows the task's rule, so that every answer must be right; nothing is learned. Without ``client`` only the
    files are written and priced.
    """
    counting, log = from_dict(Counting, task), []
    with tempfile.TemporaryDirectory() as name, dry_key():
        folder = Path(name)
        files = chat.write_files(folder, counting, train, test)
        estimate = chat.estimate(*files, model)
        log.append(f"wrote {train} examples to train.jsonl and {test} to test.jsonl, no sequence in both")
        metrics = procedure(folder, files, model, log) if client else {}
        require(KEY_OF_THE_DRY_RUN not in "\n".join(log), "the key stands in the log")
        return metrics | {"log": log, "estimate": vars(estimate) | {"dollars": estimate.dollars}}, {}


def procedure(folder: Path, files: tuple[Path, Path], model: str, log: list[str]) -> dict[str, Any]:
    """Every step with its troubles; ``log`` gets a line for each."""
    provider = Provider(busy=1, failure="the loopback was told to fail")
    with serving(provider) as address:
        options = dict(base_url=address, wait=0.0, say=log.append)
        try:
            FineTuning(folder / "run", *files, model, **options).answer()
        except ProviderError as error:
            log.append(str(error))
        provider.failure = ""
        FineTuning(folder / "run", *files, model, **options).start()
        log.append("killed here; the same command again:")
        scores = FineTuning(folder / "run", *files, model, **options).answer()
    return {"requests": provider.requests[:60], "scores": scores, "uploads": len(provider.files)}


@contextmanager
def dry_key() -> Iterator[None]:
    """Within it the environment has a key that belongs to nobody."""
    before = os.environ.get(KEY)
    os.environ[KEY] = KEY_OF_THE_DRY_RUN
    try:
        yield
    finally:
        if before is None:
            del os.environ[KEY]
        else:
            os.environ[KEY] = before
