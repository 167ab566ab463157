"""Golden file of what a change of structure must leave as it is; ``python tests/golden.py`` writes
it anew.

``plans``: for every experiment, tier and number of random seeds how many runs are planned and a
digest of their ids, in order. ``files``: digests of the ledger and of README's findings. What
figures draw is in ``figures/data.json``.
"""

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/golden.json"
SEEDS = (0, 1, 5)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def plans() -> dict[str, str]:
    from entp_lab.configs import TIERS, config_id
    from entp_lab.registry import EXPERIMENTS

    found = {}
    for name, experiment in EXPERIMENTS.items():
        for tier in TIERS:
            for seeds in SEEDS:
                ids = [
                    config_id(config, experiment.version)
                    for config in experiment.configs(tier, seeds)
                ]
                if ids:
                    found[f"{name} {tier} {seeds}"] = f"{len(ids)} {digest(' '.join(ids).encode())}"
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(plans(), indent=0) + "\n")
