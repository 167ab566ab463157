"""Which runs of a sweep come first: those that finish a comparison on the machine where it was begun."""

from collections.abc import Iterable, Mapping

import torch

from entp_lib.config import RunConfig, canonical_json
from entp_lib.runs.execution import Config
from entp_lib.runs.provenance import device_name
from entp_lib.runs.records import Record

HERE, NOWHERE, ELSEWHERE = 0, 1, 2


def pair_of(config: Config) -> str:
    """What twins share: the experiment and both seeds, as claims pair them; a study shares its own with none.

    Whatever else differs, architecture, depth or length, is what some claim compares.
    """
    if not isinstance(config, RunConfig):
        return ""
    return canonical_json([config.experiment, config.model_seed, config.data_seed])


def begun_here_first(todo: Mapping[str, Config], stored: Iterable[Record], device: str) -> dict[str, Config]:
    """``todo`` with those first whose twins were made on this machine, those last whose twins were made on another.

    ``stored``: the records there are, complete or partial. Within each the order stays. A record that does not say
    where it was made counts as none.
    """
    here = (device_name(device), torch.backends.cpu.get_cpu_capability())
    place: dict[str, int] = {}
    for record in stored:
        name, capability = record.provenance.get("device"), record.provenance.get("cpu_capability")
        pair = pair_of(record.config)
        if pair and name and (capability or name != here[0]):
            found = HERE if (name, capability) == here else ELSEWHERE
            place[pair] = min(found, place.get(pair, ELSEWHERE))
    return dict(sorted(todo.items(), key=lambda item: place.get(pair_of(item[1]), NOWHERE)))
