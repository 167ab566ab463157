"""From configurations to records: cached, resumable, several at once, one failure never losing the others."""

import concurrent.futures as cf
import contextlib
import logging
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from entp_lib.config import ON_CPU, RunConfig, canonical_json, config_id
from entp_lib.models.entp import token_forwards
from entp_lib.models.transformer import check_device
from entp_lib.runs import cluster, scheduler, stopping
from entp_lib.runs.deadlines import deadline_after
from entp_lib.runs.execution import Config, check_can_compute, device_for, tidy
from entp_lib.runs.gathering import Gathering, Job
from entp_lib.runs.generations import begin_or_continue, end, is_done
from entp_lib.runs.pairs import begun_here_first
from entp_lib.runs.progress import Meter, event, progress_folder
from entp_lib.runs.records import Record, Store
from entp_lib.runs.studies import told_steps
from entp_lib.runs.workers import InProcess, available_cores
from entp_lib.strict import ConfigError, OneLine, check_types, require
from entp_lib.tasks import build_task

log = logging.getLogger(__name__)


@dataclass
class Sweep:
    """What a sweep did: the records in the order of the configurations, and what failed."""

    records: list[Record] = field(default_factory=list)
    failures: list[tuple[Config, str]] = field(default_factory=list)
    reused: int = 0
    computed: int = 0

    @property
    def complete(self) -> list[Record]:
        """The records that ran to their end: the only ones a verdict may use."""
        return [r for r in self.records if r.status == "complete"]

    def take(self, gathering: Gathering) -> None:
        """Note what came of the runs that had to be computed."""
        self.computed, self.failures = len(gathering.found), gathering.failures


class SweepError(OneLine, RuntimeError):
    """Some runs of a sweep failed; the others' records are safe. ``sweep`` holds what there is."""

    def __init__(self, sweep: Sweep):
        self.sweep = sweep
        total = sweep.reused + sweep.computed + len(sweep.failures)
        alike: dict[str, list[str]] = {}  # a missing corpus fails all runs in the same words
        for config, why in sweep.failures:
            alike.setdefault(why, []).append(f"{config.experiment} {config.label}")
        more = {why: f" and {len(names) - 1} more" if len(names) > 1 else "" for why, names in alike.items()}
        lines = [f"  {names[0]}{more[why]}: {why}" for why, names in alike.items()]
        super().__init__("\n".join([f"{len(sweep.failures)} of {total} runs failed:", *lines]))


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep goes about its runs; nothing here decides what they find.

    ``jobs`` = 0: as many processes as cores on a CPU, one on a GPU. ``time_limit``: seconds for the whole sweep, 0 for
    none. ``device``: one for all runs; None lets each worker choose by the run's tier. ``fresh``: begin or continue a
    fresh generation of the records of the first run's experiment; what it is only compared with stays. ``label`` names
    the sweep where its progress is shown. ``cluster``: where runs are computed instead of here
    (``entp_lib.runs.cluster``; default: what ENTP_CLUSTER says), unless ``jobs`` is 1; ``mixed``: its workers may have
    other versions.
    """

    fresh: bool = False
    jobs: int = 0
    time_limit: float = 0.0
    device: str | None = None
    threads: int = 1
    label: str = ""
    cluster: str = ""
    mixed: bool = False

    def __post_init__(self):
        check_types(self)
        require(self.jobs >= 0, f"jobs = {self.jobs}: must be 0 (one per core) or more")
        require(0 <= self.time_limit < math.inf, f"time_limit = {self.time_limit}: must be 0 (none) or more seconds")
        require(self.threads >= 1, f"threads = {self.threads}: must be at least 1")
        if self.cluster:
            scheduler.parsed(self.cluster)


def usual_device(configs: Iterable[Config]) -> str:
    """Where runs are computed if nobody says so: on the GPU from tier ``gpu`` on, where torch sees one."""
    on_gpu = torch.cuda.is_available() and any(config.tier not in ON_CPU for config in configs)
    return "cuda" if on_gpu else "cpu"


def sweep(
    configs: Sequence[Config],
    version: int,
    *,
    store: Store | None = None,
    executor: cf.Executor | None = None,
    **options,
) -> Sweep:
    """Records of all ``configs``: those that exist are reused, the others computed, several at once.

    ``options``: those of ``SweepOptions``. ``executor``: any ``concurrent.futures`` executor in place of local
    processes, Dask's too; a worker that leaves its records elsewhere is no matter, they are saved here.

    Raises SweepError at the end if runs failed, RecordError at once if the store is read-only and a record is missing,
    or if it cannot be written, and ConfigError for options that make no sense, or if the tier needs a GPU and there
    is none.
    """
    store, options = store or Store(), SweepOptions(**options)
    by_id = {config_id(config, version): config for config in configs}
    generation, mine = "", by_id
    if options.fresh and by_id:
        check_can_compute(configs, version, store)
        mine = {i: config for i, config in by_id.items() if config.experiment == configs[0].experiment}
        generation = begin_or_continue(store, configs[0].experiment, mine)
    found: dict[str, Record] = {}
    stored: list[Record] = []
    for record_id, config in by_id.items():
        record = store.find(config, version)
        stored += [record] if record is not None else []
        if is_done(record, generation if record_id in mine else ""):
            tidy(store, record)
            found[record_id] = record
    todo = {record_id: config for record_id, config in by_id.items() if record_id not in found}
    result = Sweep(reused=len(found))
    if todo:
        check_can_compute(list(todo.values()), version, store)
        if executor is None and not options.cluster:
            if options.device:
                check_device(options.device)
            todo = begun_here_first(todo, stored, options.device or usual_device(todo.values()))
        try:
            job = Job(version, store, generation, options.device, options.threads)
            found |= compute(todo, job, options, executor, result)
        except stopping.Terminated:
            raise
        except KeyboardInterrupt:
            raise stopping.Stopped(
                f"{result.reused + result.computed} of {len(by_id)} runs are complete and kept; run it again, "
                "and the others go on from their last checkpoints"
            ) from None
    if generation and all(i in found and is_done(found[i], generation) for i in mine):
        end(store, configs[0].experiment, mine)
    result.records = [found[i] for i in by_id if i in found]
    partial = len(result.records) - len(result.complete)
    event("records", reused=result.reused, computed=result.computed, failed=len(result.failures), partial=partial)
    if result.failures:
        raise SweepError(result)
    return result


def compute(
    todo: dict[str, Config], job: Job, options: SweepOptions, executor: cf.Executor | None, result: Sweep
) -> dict[str, Record]:
    """Run what is missing, on ``executor`` or here; ``result`` is told what came of it even where it is stopped."""
    jobs = 1
    where = "" if executor is not None or options.jobs == 1 else options.cluster or os.environ.get(cluster.VARIABLE, "")
    with contextlib.ExitStack() as stack:
        if where:
            mixed = options.mixed or bool(os.environ.get(cluster.MIXED_VARIABLE))
            executor = stack.enter_context(cluster.connected(where, mixed))
        elif executor is None:
            devices = {options.device or device_for(c.tier) for c in todo.values()}  # an error at once, not per worker
            jobs = min(options.jobs or (available_cores() if devices == {"cpu"} else 1), len(todo))
            executor = InProcess() if jobs == 1 else None
        else:
            executor = cluster.adopted(executor)
        for experiment in {config.experiment for config in todo.values()}:
            job.store.remove_leftovers(experiment)
        deadline = deadline_after(options.time_limit)
        folder = stack.enter_context(progress_folder(job.store.root / "progress"))
        meter = Meter(folder, {i: told_steps(c) for i, c in todo.items()}, options.label, step_weights(todo))
        stack.callback(meter.close)
        gathering = Gathering(todo, job, deadline, meter)
        stack.callback(result.take, gathering)
        if isinstance(executor, cluster.Remote):
            gathering.watch_cluster(executor)
        elif executor is not None:
            gathering.watch(executor)
        while gathering.missing:
            jobs = gathering.watch_processes(jobs)
    return gathering.found


def step_weights(todo: dict[str, Config]) -> dict[str, float]:
    """What a step of each run costs, in the cheapest one's: tokens through all layers, times the weights of a layer.

    A study's step counts as the cheapest; so does that of a run whose data are not there, which will say so itself.
    """
    tokens: dict[str, float] = {}
    costs: dict[str, float] = {}
    for i, config in todo.items():
        if not isinstance(config, RunConfig):
            continue
        model = config.model
        params = {name: value for name, value in config.task_params.items() if not name.endswith("seed")}
        key = canonical_json([config.task, params, model.architecture, model.full_layers, model.n_layers])
        if key not in tokens:
            try:
                wanted_BT = build_task(config.task, config.task_params).wanted_sample()
                tokens[key] = token_forwards(model, wanted_BT) / len(wanted_BT)
            except (ConfigError, OSError) as error:
                log.debug("what a step of %s costs is not known: %s", config.experiment, error)
                tokens[key] = 0.0
        costs[i] = tokens[key] * config.train.batch_size * model.n_layers * model.width**2
    least = min((cost for cost in costs.values() if cost > 0), default=1.0)
    return {i: max(1.0, costs.get(i, 0.0) / least) for i in todo}
