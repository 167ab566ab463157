"""Golden file of what a change of structure must leave as it is; ``python tests/golden.py`` writes
it anew.

For every experiment, tier and number of random seeds: how many runs are planned and a digest of
their ids, in order. What figures draw is in ``figures/data.json``.
"""

import hashlib
import json
from pathlib import Path

FILE = Path(__file__).with_name("golden.json")


def plans():
    from entp_lab.configs import TIERS, config_id
    from entp_lab.registry import EXPERIMENTS

    found = {}
    for name, experiment in EXPERIMENTS.items():
        for tier in TIERS:
            for seeds in (0, 1, 5):
                ids = [
                    config_id(config, experiment.version)
                    for config in experiment.configs(tier, seeds)
                ]
                digest = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16]
                if ids:
                    found[f"{name} {tier} {seeds}"] = f"{len(ids)} {digest}"
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(plans(), indent=0) + "\n")
