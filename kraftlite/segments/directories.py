"""The content of brokers' log directories: replicas, their segment files and what the checkpoints say of them, as plain values.

Broker, topic and partition come from where a directory was found, never from a pattern over a path. Nothing is opened but
checkpoints; segments are listed. Values are picklable and travel to Spark's tasks.

Source: Kafka's layout; LG-03, LG-07, LG-08, LG-29.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from kraftlite.host.disk import HostDisk
from kraftlite.host.files import MAX_TEXT_BYTES, read_bounded
from kraftlite.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HW_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    MalformedCheckpoint,
    parse_epochs,
    read_partition_metadata,
)
from kraftlite.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX

METADATA_TOPIC = "__cluster_metadata"
COMPACTED_ALWAYS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_TOPIC_RESOURCE = 2
_POLICY = "cleanup.policy"


class AuditInputError(Exception):
    """A directory or file cannot be found or read; the message says which, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """One segment of one replica. Index paths are None where there is no such file; `last`: it is its log's last one."""

    broker: str
    topic: str
    partition: int
    directory: str
    base_offset: int
    log_path: str
    log_bytes: int
    index_path: str | None
    time_index_path: str | None
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint file's entries by (topic, partition); `problem` when the file is there and malformed."""

    path: str
    present: bool = False
    problem: str | None = None
    entries: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of a partition. Offsets None: the checkpoint does not speak of it. `clean`: its broker shut down in order.

    `orphans`: base offsets of index files whose log file is not there.
    """

    broker: str
    topic: str
    partition: int
    directory: str
    segments: tuple[SegmentFiles, ...]
    clean: bool
    hw: int | None
    recovery_point: int | None
    log_start: int | None
    epochs: tuple[tuple[int, int], ...] | None
    epochs_problem: str | None
    orphans: tuple[int, ...]
    topic_id: UUID | None = None
    """The id in `partition.metadata`; None without one."""
    topic_id_problem: str | None = None
    compacted: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def log_dir(self) -> str:
        return str(Path(self.directory).parent)

    @property
    def partition_metadata_path(self) -> str:
        return f"{self.directory}/{PARTITION_METADATA}"

    @property
    def epochs_path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    def checkpoint_path(self, name: str) -> str:
        return f"{self.log_dir}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """One log directory of one broker: its replicas, its checkpoints, and what was left out."""

    broker: str
    path: str
    clean: bool
    replicas: tuple[Replica, ...]
    checkpoints: tuple[Checkpoint, ...]
    skipped: tuple[str, ...]
    missing: tuple[tuple[str, int, int], ...]
    """(topic, partition, HW) that a checkpoint names with data and that have no directory."""


def split_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition's directory; None for others, also those on their way out (`…-delete`, `…-stray`)."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdecimal():
        return None
    return topic, int(partition)


def parse_data_dirs(text: Sequence[str]) -> dict[str, list[Path]]:
    """`b4=DIR,b5=DIR` (also given several times, or one broker with several directories). ValueError says what is wrong."""
    found: dict[str, list[Path]] = {}
    for part in (part.strip() for given in text for part in given.split(",")):
        if not part:
            continue
        name, equals, path = part.partition("=")
        if not equals or not name.strip() or not path.strip():
            raise ValueError(f"{part!r}: allowed is NAME=DIR, several with commas")
        found.setdefault(name.strip(), []).append(Path(path.strip()).expanduser().absolute())
    if not found:
        raise ValueError("no directory is given: allowed is NAME=DIR, several with commas")
    return found


def local_data_dirs(data_dir: Path) -> dict[str, list[Path]]:
    """The log directories of a local cluster's nodes, running or not, as `b<id>` (`c<id>` for a controller alone).

    Raises AuditInputError.
    """
    from kraftlite.local.state import LocalError, load

    try:
        cluster = load(data_dir, copied=True)
    except LocalError as error:
        raise AuditInputError(str(error)) from None
    return {f"{'b' if node.is_broker else 'c'}{node.id}": [Path(node.data_dir)] for node in cluster.nodes}


def discover(dirs: Mapping[str, Sequence[Path]], *, topics: Iterable[str] = (), compacted: Iterable[str] = ()) -> list[LogDir]:
    """The log directories of `dirs` (broker name -> directories). `topics`: only these. `compacted`: more topics with gaps.

    A topic is taken as compacted when the metadata log in one of the directories ever said so, when the broker's cleaner has
    a checkpoint for it, or when it is one of Kafka's own. Raises AuditInputError.
    """
    found = [_log_dir(broker, path) for broker, paths in sorted(dirs.items()) for path in paths]
    wanted = frozenset(topics)
    loose = {*COMPACTED_ALWAYS, *compacted}
    for log_dir in found:
        loose |= compacted_topics(Path(log_dir.path) / f"{METADATA_TOPIC}-0")
        loose |= {topic for topic, _ in _offsets(Path(log_dir.path) / CLEANER_CHECKPOINT).entries}
    known = {replica.topic for log_dir in found for replica in log_dir.replicas}
    absent = sorted(wanted - known)
    if absent:
        raise AuditInputError(f"no broker has a replica of {', '.join(absent)}; there are {', '.join(sorted(known)) or 'none'}")
    return [
        replace(
            log_dir,
            replicas=tuple(
                replace(replica, compacted=replica.topic in loose)
                for replica in log_dir.replicas
                if not wanted or replica.topic in wanted
            ),
            missing=tuple(entry for entry in log_dir.missing if not wanted or entry[0] in wanted),
        )
        for log_dir in found
    ]


def compacted_topics(metadata_dir: Path) -> set[str]:
    """Topics whose `cleanup.policy` was ever set to something with `compact`, by a metadata log (empty when there is none)."""
    from kraftlite.metadata.records import ConfigRecord
    from kraftlite.postmortem.reading import read_metadata_log

    if not metadata_dir.is_dir():
        return set()
    found: set[str] = set()
    for entry in read_metadata_log(metadata_dir):
        if (
            isinstance(entry.record, ConfigRecord)
            and entry.record.resource_type == _TOPIC_RESOURCE
            and entry.record.name == _POLICY
            and "compact" in (entry.record.value or "")
        ):
            found.add(entry.record.resource_name)
    return found


def _log_dir(broker: str, path: Path) -> LogDir:
    if not path.is_dir():
        raise AuditInputError(f"{broker}={path}: there is no such directory")
    checkpoints = {name: _offsets(path / name) for name in (HW_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT)}
    clean = (path / CLEAN_SHUTDOWN).exists()
    replicas, skipped = [], []
    try:
        for child in sorted(path.iterdir()):
            if not child.is_dir():
                continue
            tp = split_name(child.name)
            if tp is None:
                skipped.append(child.name)
            else:
                replicas.append(_replica(broker, child, tp, checkpoints, clean))
    except OSError as error:
        raise AuditInputError(f"{error.filename or path}: {error.strerror or error}") from None
    here = {(replica.topic, replica.partition) for replica in replicas}
    missing = [(*tp, hw) for tp, hw in sorted(checkpoints[HW_CHECKPOINT].entries.items()) if hw > 0 and tp not in here]
    return LogDir(
        broker=broker,
        path=str(path),
        clean=clean,
        replicas=tuple(replicas),
        checkpoints=tuple(checkpoints.values()),
        skipped=tuple(skipped),
        missing=tuple(missing),
    )


def _replica(broker: str, path: Path, tp: tuple[str, int], checkpoints: Mapping[str, Checkpoint], clean: bool) -> Replica:
    segments, orphans = _segments(broker, path, tp)
    epochs, problem = _epochs(path / LEADER_EPOCH_CHECKPOINT)
    topic_id, topic_id_problem = _topic_id(path)
    metadata = tp[0] == METADATA_TOPIC
    return Replica(
        broker=broker,
        topic=tp[0],
        partition=tp[1],
        directory=str(path),
        segments=segments,
        clean=clean and not metadata,  # the marker speaks of a broker's own logs
        hw=checkpoints[HW_CHECKPOINT].entries.get(tp),
        recovery_point=checkpoints[RECOVERY_POINT_CHECKPOINT].entries.get(tp),
        log_start=checkpoints[LOG_START_CHECKPOINT].entries.get(tp),
        epochs=epochs,
        epochs_problem=problem,
        orphans=orphans,
        topic_id=topic_id,
        topic_id_problem=topic_id_problem,
    )


def _segments(broker: str, path: Path, tp: tuple[str, int]) -> tuple[tuple[SegmentFiles, ...], tuple[int, ...]]:
    """Segments in order, and base offsets of indexes without a log."""
    logs: dict[int, Path] = {}
    indexes: dict[str, dict[int, Path]] = {INDEX_SUFFIX: {}, TIME_INDEX_SUFFIX: {}}
    for file in path.iterdir():
        if not file.stem.isdecimal():
            continue
        if file.suffix == LOG_SUFFIX:
            logs[int(file.stem)] = file
        elif file.suffix in indexes:
            indexes[file.suffix][int(file.stem)] = file
    bases = sorted(logs)
    offset_index, time_index = indexes[INDEX_SUFFIX], indexes[TIME_INDEX_SUFFIX]
    segments = tuple(
        SegmentFiles(
            broker=broker,
            topic=tp[0],
            partition=tp[1],
            directory=str(path),
            base_offset=base,
            log_path=str(logs[base]),
            log_bytes=_size(logs[base]),
            index_path=str(offset_index[base]) if base in offset_index else None,
            time_index_path=str(time_index[base]) if base in time_index else None,
            last=base == bases[-1],
        )
        for base in bases
    )
    return segments, tuple(sorted({*offset_index, *time_index} - set(logs)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # whoever reads it will see


def list_again(replica: Replica) -> Replica:
    """List the replica's files as they are now: a running broker deletes and replaces segments. Raises OSError."""
    segments, orphans = _segments(replica.broker, Path(replica.directory), (replica.topic, replica.partition))
    return replace(replica, segments=segments, orphans=orphans)


def _offsets(path: Path) -> Checkpoint:
    """An offset checkpoint, strictly: brokers take a malformed one for empty, an audit must not. One without a byte is as Apache
    Kafka makes it before it has anything to write."""
    try:
        lines = read_bounded(path, MAX_TEXT_BYTES).decode().splitlines()
    except FileNotFoundError:
        return Checkpoint(path=str(path), entries={})
    except (OSError, ValueError) as error:
        return Checkpoint(path=str(path), present=True, problem=str(error), entries={})
    if not lines:
        return Checkpoint(path=str(path), present=True, entries={})
    if len(lines) < 2 or lines[0].strip() != "0" or not lines[1].strip().isdecimal():
        problem = "line 1 must be version 0 and line 2 the number of entries"
        return Checkpoint(path=str(path), present=True, problem=problem, entries={})
    entries: dict[tuple[str, int], int] = {}
    for number, line in enumerate(lines[2:], start=3):
        cells = line.split()
        if len(cells) != 3 or not cells[1].isdecimal() or not cells[2].isdecimal() or (cells[0], int(cells[1])) in entries:
            problem = f"line {number} is {line!r}"
            return Checkpoint(path=str(path), present=True, problem=problem, entries=entries)
        entries[cells[0], int(cells[1])] = int(cells[2])
    if len(entries) != int(lines[1]):
        problem = f"line 2 says {lines[1].strip()} entries, found {len(entries)}"
        return Checkpoint(path=str(path), present=True, problem=problem, entries=entries)
    return Checkpoint(path=str(path), present=True, entries=entries)


def _epochs(path: Path) -> tuple[tuple[tuple[int, int], ...] | None, str | None]:
    try:
        return tuple(parse_epochs(str(path), read_bounded(path, MAX_TEXT_BYTES))), None
    except FileNotFoundError:
        return None, None
    except ValueError as error:
        return None, str(error).removeprefix(f"{path}: ")


def _topic_id(path: Path) -> tuple[UUID | None, str | None]:
    try:
        return read_partition_metadata(HostDisk(), str(path)), None
    except MalformedCheckpoint as error:
        return None, str(error).removeprefix(f"{path / PARTITION_METADATA}: ")
