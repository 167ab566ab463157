"""``python -m entp_lib records``: read every record, compare it with its siblings, and say what is wrong with which."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entp_lib.records.store import Record

FEWEST = 3  # siblings that say what their kind of run writes
NUMBER, NOTHING = "a number", "None"
KINDS = {int: NUMBER, float: NUMBER, str: "a text", bool: "True or False", list: "a list", dict: "a dictionary"}


def add_parser(commands) -> None:
    """Add ``records`` to the commands."""
    records = commands.add_parser(
        "records",
        help="verify every record and list the damaged ones",
        description="Read every record and say which are no sound ones, and why: changed, renamed, of another version, "
        "or with other content than runs of their kind write. Records that were made elsewhere are copied to "
        "results/records and then verified so.",
    )
    records.add_argument("results", nargs="?", metavar="DIR", help="a folder of results (default: the project's)")
    records.set_defaults(command=records_command)


def records_command(options) -> int:
    from entp_lib.records.store import RecordError, Store
    from entp_lib.reports.campaign import versions
    from entp_lib.validation import printable, require

    known, store = versions(), Store(options.results, read_only=True)
    folder, sound, wrong = store.root / "records", [], []
    require(options.results is None or folder.is_dir(), f"{options.results}: has no records/ with records of runs")
    for path in sorted(folder.glob("*/*.json")):
        try:
            record = store.read(path.parent.name, path.stem)
            if record is None:
                raise RecordError(f"record {path.name} is not there (a link that leads nowhere?)")
            if known.get(record.experiment) != record.version:
                raise RecordError(f"record {path.name} belongs to no current experiment")
            sound.append(record)
        except RecordError as error:
            wrong.append(str(error))
    unlike = unlike_siblings(sound)
    wrong += [f"record {name}: {why}" for name, why in unlike.items()]
    print(printable("\n".join([*wrong, f"{len(sound) - len(unlike)} records are sound, {len(wrong)} are not"])))
    return 1 if wrong else 0


def unlike_siblings(records: Sequence["Record"]) -> dict[str, str]:
    """Records that hold something else than most of their study or task, by name, each with the first difference."""
    groups, found = defaultdict(list), {}
    for record in records:
        kind = getattr(record.config, "study", "") or record.config.task
        content = {"metrics": record.metrics, "curves": record.curves}
        groups[record.experiment, kind].append((f"{record.experiment}/{record.id}", dict(shape(content))))
    for (_, kind), members in groups.items():
        types = defaultdict(Counter)
        for _, held in members:
            for path, what in held.items():
                types[path][what] += 1
        for name, held in members if len(members) >= FEWEST else ():
            for path, counts in types.items():
                (usual, count), mine = counts.most_common(1)[0], held.get(path)
                top = path.count(".") == 1 and not path.endswith("[]")
                if top and mine is None and counts.total() == len(members) - 1:
                    found.setdefault(name, f"{path} is missing, which all others of {kind} have")
                if {mine, usual}.isdisjoint({None, NOTHING}) and mine != usual and 2 * count > len(members):
                    found.setdefault(name, f"{path} is {mine}, in others of {kind} {usual}")
    return found


def shape(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, type in words) of everything in nested dictionaries and lists."""
    if path:
        yield path, KINDS.get(type(value), NOTHING)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from shape(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from shape(inner, f"{path} []")
