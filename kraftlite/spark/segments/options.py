"""The options of a query that reads segment files (`scan=segments`) instead of asking brokers.

What only a broker could do is refused, with the reason; so is what says something about files where brokers are asked. What knows
files is imported when it is needed: every process that plans a query begins with the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftlite.host.files import MAX_TEXT_BYTES, read_bounded

SCANS: Final = ("broker", "segments")
VIEWS: Final = ("records", "batches")
ENDS: Final = ("highwatermark", "logend")
NAMES: Final = ("scan", "path", "view", "endAt")
NO_BROKER: Final = {"bootstrap.servers": "no-broker.invalid:1"}
"""The option that stands for the brokers of a query that has none."""
_FILES_ONLY: Final = NAMES[1:]
_NO_BROKER_FOR: Final = {
    "fetchOffset.numRetries": "files do not lag behind, nothing is asked again",
    "fetchOffset.retryIntervalMs": "files do not lag behind, nothing is asked again",
    "kafkaConsumer.pollTimeoutMs": "nobody is waited for",
}
_RECORDS_ONLY: Final = (
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "endAt"),
    *("maxRecordsPerPartition", "includeHeaders", "parser", "pushdown"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """`dirs`: (broker's name, its log directories), sorted. `batches`: rows are record batches of every replica, and not records.
    `log_end`: records beyond the high watermark that a broker has written down are read, too."""

    dirs: tuple[tuple[str, tuple[str, ...]], ...]
    batches: bool = False
    log_end: bool = False


def files_of(options: Mapping[str, str], *, streaming: bool) -> Files | None:
    """Return the files that options (names in lower case) ask for; None when brokers are to be asked. Raises ValueError, which
    names the option and the reason."""
    scan = _choice(options, "scan", SCANS)
    if scan == "broker":
        for name in _FILES_ONLY:
            if name.lower() in options:
                raise ValueError(f"option '{name}' is for scan=segments, and scan is broker: a topic is read from its brokers")
        return None
    if streaming:
        raise ValueError("option 'scan' is segments, which is for batch queries; a stream is read from brokers (scan=broker)")
    for name, value in options.items():
        if name.startswith("kafka.") and (name, value.lower()) != ("kafka.isolation.level", "read_uncommitted"):
            why = (
                "which transactions were aborted is not read from files"
                if name == "kafka.isolation.level"
                else "no broker is asked"
            )
            raise ValueError(f"option '{name}' is not valid with scan=segments: {why}")
    _refuse(options, _NO_BROKER_FOR, "scan=segments")
    batches = _choice(options, "view", VIEWS) == "batches"
    if batches:
        why = "every batch of every replica is a row; filter by its columns"
        _refuse(options, dict.fromkeys(_RECORDS_ONLY, why), "view=batches")
    return Files(dirs=_dirs(options.get("path", "")), batches=batches, log_end=_choice(options, "endAt", ENDS) == "logend")


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name.lower(), allowed[0])
    if value.lower() not in allowed:
        shown = " and ".join("highWatermark" if it == "highwatermark" else "logEnd" if it == "logend" else it for it in allowed)
        raise ValueError(f"{name} is {value!r}; allowed are {shown}")
    return value.lower()


def _refuse(options: Mapping[str, str], names: Mapping[str, str], where: str) -> None:
    for name, why in names.items():
        if name.lower() in options:
            raise ValueError(f"option '{name}' is not valid with {where}: {why}")


def _dirs(path: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A broker's log directory, `NAME=DIR,…`, or the directory of a local cluster."""
    if not path.strip():
        raise ValueError(
            "option 'path' must be specified with scan=segments: a broker's data directory, NAME=DIR,NAME=DIR of several, or the "
            "directory of `kraftlite up`"
        )
    from kraftlite.local.state import STATE_NAME
    from kraftlite.segments.directories import AuditInputError, local_data_dirs, parse_data_dirs

    one = Path(path.strip()).expanduser().absolute()
    try:
        if (one / STATE_NAME).exists():
            found = local_data_dirs(one)
        elif one.is_dir():
            found = {_name(one): [one]}
        elif "=" in path:
            found = parse_data_dirs([path])
        else:
            raise ValueError("there is no such directory")
        for directory in (it for directories in found.values() for it in directories):
            if not directory.is_dir():
                raise ValueError(f"{directory}: there is no such directory")
    except (ValueError, AuditInputError) as error:
        raise ValueError(f"path is {path!r}: {error}") from None
    return tuple((name, tuple(str(it) for it in found[name])) for name in sorted(found))


def _name(directory: Path) -> str:
    """Return a node's name as a local cluster has it, by the id in `meta.properties`; without one, the directory's name."""
    try:
        lines = read_bounded(directory / "meta.properties", MAX_TEXT_BYTES).decode().splitlines()
    except (OSError, ValueError):
        return directory.name
    ids = [value.strip() for key, _, value in (line.partition("=") for line in lines) if key.strip() == "node.id"]
    return f"b{ids[0]}" if ids else directory.name
