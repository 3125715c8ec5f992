"""Ways to damage the files of a node that does not run, as disks, file systems and people do."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from kraftlite.log.batch import iter_batches

Damage = Callable[[Path], None]
PAGE = 4096


def flip(path: Path, at: float = 0.5) -> None:
    """One bit, at this fraction of the file."""
    data = bytearray(path.read_bytes())
    data[min(int(len(data) * at), len(data) - 1)] ^= 0x10
    path.write_bytes(data)


def raise_last_epoch(path: Path) -> None:
    """A bit of the last batch's leader epoch, which no CRC covers."""
    data = bytearray(path.read_bytes())
    *_, (last, _) = iter_batches(bytes(data))
    data[len(data) - last.size_bytes + 15] ^= 0x10
    path.write_bytes(data)


def garble(path: Path) -> None:
    """The same size, nothing of the content."""
    path.write_bytes(random.Random(path.name).randbytes(max(path.stat().st_size, 24)))


def cut(path: Path, at: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * at)])


def zero_page(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    start = int(len(data) * at) // PAGE * PAGE
    data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    path.write_bytes(data)


def append(path: Path, junk: bytes) -> None:
    path.write_bytes(path.read_bytes() + junk)


def logs(folder: Path) -> list[Path]:
    """The segments of a partition, oldest first."""
    return sorted(folder.glob("*.log"))


def each(folder: Path, suffix: str, damage: Damage) -> None:
    """Every file of a kind; a partition whose files are not there is no test of anything."""
    found = sorted(folder.glob(f"*{suffix}"))
    assert found, f"no {suffix} in {folder}"
    for path in found:
        damage(path)


def leftovers(folder: Path) -> None:
    """What an interrupted deletion, cleaning or download leaves behind."""
    first, last = logs(folder)[0], logs(folder)[-1]
    shutil.copy(first, folder / f"{first.name}.deleted")
    shutil.copy(first, folder / f"{first.name}.cleaned")
    shutil.copy(last, folder / f"{last.stem}.log.swap")
    (folder / "00000000000000777777.index").write_bytes(b"\0" * 8)
    (folder / "leader-epoch-checkpoint.tmp").write_bytes(b"half")


IN_A_PARTITION: dict[str, Damage] = {
    "nothing": lambda folder: None,
    "last-segment-bit-flipped": lambda folder: flip(logs(folder)[-1], 0.3),
    "last-segment-last-batch-flipped": lambda folder: flip(logs(folder)[-1], 1.0),
    "last-segment-truncated": lambda folder: cut(logs(folder)[-1], 0.4),
    "last-segment-one-byte-short": lambda folder: cut(logs(folder)[-1], 0.99999),
    "last-segment-empty": lambda folder: logs(folder)[-1].write_bytes(b"") and None,
    "last-segment-deleted": lambda folder: logs(folder)[-1].unlink(),
    "first-segment-deleted": lambda folder: logs(folder)[0].unlink(),
    "first-segment-emptied": lambda folder: logs(folder)[0].write_bytes(b"") and None,
    "directory-deleted": shutil.rmtree,
    "directory-is-a-file": lambda folder: _becomes_a_file(folder),
    "partition-metadata-garbled": lambda folder: garble(folder / "partition.metadata"),
    "partition-metadata-deleted": lambda folder: (folder / "partition.metadata").unlink(),
    "epochs-too-high": lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n1\n2147483647 0\n") and None,
    "middle-segment-deleted": lambda folder: logs(folder)[-2].unlink(),
    "all-segments-deleted": lambda folder: each(folder, ".log", Path.unlink),
    "garbage-appended": lambda folder: append(logs(folder)[-1], random.Random(1).randbytes(5000)),
    "half-a-batch-appended": lambda folder: append(logs(folder)[-1], logs(folder)[-1].read_bytes()[:1000]),
    "zeros-appended": lambda folder: append(logs(folder)[-1], bytes(10_000)),
    "page-zeroed": lambda folder: zero_page(logs(folder)[-1], 0.6),
    "middle-segment-truncated": lambda folder: cut(logs(folder)[-2], 0.5),
    "index-garbled": lambda folder: each(folder, ".index", garble),
    "index-flipped": lambda folder: each(folder, "0.index", lambda path: flip(path, 0.5)),
    "index-truncated": lambda folder: each(folder, ".index", lambda path: cut(path, 0.45)),
    "index-deleted": lambda folder: each(folder, ".index", Path.unlink),
    "timeindex-garbled": lambda folder: each(folder, ".timeindex", garble),
    "timeindex-deleted": lambda folder: each(folder, ".timeindex", Path.unlink),
    "txnindex-garbled": lambda folder: (folder / f"{logs(folder)[-1].stem}.txnindex").write_bytes(b"x" * 34) and None,
    "producer-snapshot-garbled": lambda folder: each(folder, ".snapshot", garble),
    "epochs-garbled": lambda folder: garble(folder / "leader-epoch-checkpoint"),
    "epochs-truncated": lambda folder: cut(folder / "leader-epoch-checkpoint"),
    "epochs-deleted": lambda folder: (folder / "leader-epoch-checkpoint").unlink(),
    "leftovers": leftovers,
}
"""What a broker heals by itself or from the leader, in one partition's directory."""


METADATA = "__cluster_metadata-0"


def around_the_partitions(data: Path, neighbour: str) -> None:
    """Everything in a broker's log directory that is not a partition of its own, at once."""
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        garble(data / name)
    (data / "log-start-offset-checkpoint").write_text(f"0\n1\n{neighbour.rpartition('-')[0]} 0 999999\n")
    raise_last_epoch(logs(data / METADATA)[-1])
    (data / METADATA / "quorum-state").unlink()
    (data / METADATA / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"half a download")
    shutil.copytree(data / neighbour, data / f"{neighbour}.0123456789abcdef0123456789abcdef-delete")
    shutil.copytree(data / neighbour, data / "unknown-7")
    for name in ("gone-0.0123456789abcdef0123456789abcdef-stray", "lost+found", "nonsense"):
        (data / name).mkdir()


def _foreign(key: str, value: str) -> Damage:
    def damage(data: Path) -> None:
        path = data / "meta.properties"
        lines = [f"{key}={value}" if line.startswith(f"{key}=") else line for line in path.read_text().splitlines()]
        path.write_text("\n".join(lines))

    return damage


def _becomes_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


REFUSED: dict[str, tuple[Damage, str]] = {
    "unformatted": (lambda data: (data / "meta.properties").unlink(), "is not formatted"),
    "wiped": (shutil.rmtree, "is not formatted"),
    "meta-garbled": (lambda data: garble(data / "meta.properties"), "meta.properties: version is missing"),
    "meta-cut": (lambda data: cut(data / "meta.properties", 0.6), "meta.properties: "),
    "meta-foreign-node": (_foreign("node.id", "77"), "node.id=77"),
    "meta-foreign-cluster": (_foreign("cluster.id", "another"), "cluster.id=another"),
    "meta-bad-directory-id": (_foreign("directory.id", "short"), "directory.id"),
    "directory-is-a-file": (_becomes_a_file, "is not a directory"),
    "quorum-state-garbled": (lambda data: garble(data / METADATA / "quorum-state"), "quorum-state cannot be parsed"),
}
"""What a broker does not start with, and what it says."""

ONLY_COPY: dict[str, Damage] = {
    "partition-is-a-file": _becomes_a_file,
    "partition-gone": shutil.rmtree,
    "segment-deleted": lambda folder: logs(folder)[0].unlink(),
    "segment-emptied": lambda folder: logs(folder)[0].write_bytes(b"") and None,
    "segment-cut": lambda folder: cut(logs(folder)[0], 0.5),
    "segment-renamed": lambda folder: logs(folder)[0].rename(folder / "00000000000000000100.log") and None,
}
"""Of a partition that one broker has, after it was closed in order: refused, that partition alone."""

UNMENDABLE_CONTROLLER: dict[str, tuple[Damage, str]] = {
    "metadata-bit-flipped": (lambda data: flip(logs(data / METADATA)[0], 0.3), "is damaged at byte"),
    "metadata-page-zeroed": (lambda data: zero_page(logs(data / METADATA)[0], 0.0), "is damaged at byte 0"),
    "metadata-log-cut": (lambda data: cut(logs(data / METADATA)[0]), "has the only copy of the metadata"),
    "metadata-log-emptied": (lambda data: logs(data / METADATA)[0].write_bytes(b"") and None, "ends at offset 0"),
    "metadata-log-deleted": (lambda data: logs(data / METADATA)[0].unlink(), ".log is missing"),
    "metadata-directory-gone": (lambda data: shutil.rmtree(data / METADATA), "its metadata log"),
    "bootstrap-garbled": (lambda data: each(data / METADATA, "0-0000000000.checkpoint", garble), "checkpoint is damaged"),
    "quorum-state-garbled": (lambda data: garble(data / METADATA / "quorum-state"), "quorum-state cannot be parsed"),
    "unformatted": (lambda data: (data / "meta.properties").unlink(), "is not formatted"),
}
"""What a controller that has the only copy of the metadata does not start with."""
