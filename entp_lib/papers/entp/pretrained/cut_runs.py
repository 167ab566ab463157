"""Where a run on pretrained weights is kept while it goes on, and what it leaves."""

import hashlib
from pathlib import Path

from entp_lib import paths
from entp_lib.config import RunConfig, config_id
from entp_lib.runs.provenance import sources


def checkpoint_path(config: RunConfig, model: str, arm: str) -> Path:
    """The checkpoint, among those that git ignores, of this model and of this code: other code does not continue it."""
    base = hashlib.sha256(model.encode()).hexdigest()[:8]
    return left_by(config, arm, f"-{base}-{sources()[:8]}.safetensors")


def left_by(config: RunConfig, arm: str, ending: str = "") -> Path:
    """A file or folder of a run's, beside its checkpoint."""
    folder = paths.results() / "checkpoints" / "pretrained"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{config_id(config, 1)}-{arm}{ending}"
