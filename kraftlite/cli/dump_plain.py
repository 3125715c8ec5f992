"""log dump of the small files beside a log: their lines, and whether a node could read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kraftlite.cli.dump_report import Report
from kraftlite.cli.files import MAX_TEXT_BYTES, read_bounded
from kraftlite.host.disk import HostDisk
from kraftlite.log import checkpoints
from kraftlite.model.errors import Fault
from kraftlite.model.shown import printable

OFFSETS = (checkpoints.RECOVERY_POINT_CHECKPOINT, checkpoints.HW_CHECKPOINT, checkpoints.LOG_START_CHECKPOINT)
NAMES = ("leader-epoch-checkpoint", "partition.metadata", "quorum-state", "meta.properties", *OFFSETS, ".kafka_cleanshutdown")


def dump(path: Path, report: Report) -> None:
    """Raises OSError."""
    report.file(path)
    try:
        data = read_bounded(path, MAX_TEXT_BYTES)
    except ValueError as error:
        report.problem(str(error))
        return
    for line in data.decode(errors="backslashreplace").splitlines():
        report.line(printable(line), {"line": line})
    for problem in _problems(path, data):
        report.problem(printable(problem))


def _problems(path: Path, data: bytes) -> Iterator[str]:
    """By the readers of a node."""
    disk, directory = HostDisk(), str(path.parent)
    try:
        if path.name in OFFSETS:
            found: list[str] = []
            checkpoints.read_offset_checkpoint(disk, str(path), found.append)
            yield from found
        elif path.name == checkpoints.PARTITION_METADATA:
            checkpoints.read_partition_metadata(disk, directory)
        elif path.name == "leader-epoch-checkpoint":
            checkpoints.parse_epochs(str(path), data)
        elif path.name == checkpoints.CLEAN_SHUTDOWN:
            if checkpoints.read_clean_shutdown(disk, directory) is None:
                yield f"{path}: the epoch of a broker is expected; without it the node counts as one that was killed"
        elif path.name == "quorum-state":
            from kraftlite.raft.quorum_state import parse

            parse(data, str(path))
        elif path.name == "meta.properties":
            from kraftlite.node.meta_properties import read_meta_properties

            read_meta_properties(disk, directory)
    except (checkpoints.MalformedCheckpoint, Fault, ValueError) as error:
        yield str(error)
