"""Damage to the synced files of a node that is down: bits that turned, files that were cut, lost or garbled.

The product promises one of two things for each kind (docs/ON-DISK.md, "Damage and recovery"): the node heals and nothing is lost,
or it refuses to start and names the file. Not among them is what Kafka's formats cannot tell: a digit of a text file without a
checksum, the leader epoch of a batch, and a bit below the recovery point of a partition's log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kraftlite.config.server import ServerConfig
from kraftlite.log import checkpoints
from kraftlite.log.statements import STATEMENTS
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.node.meta_properties import META_PROPERTIES
from kraftlite.raft.flush_mark import FILE_NAME as FLUSH_MARK
from kraftlite.raft.quorum_state import FILE_NAME as QUORUM_STATE
from kraftlite.simhost.disk import MemDisk

Rot = Callable[[MemDisk, str, random.Random], None]


def flip(disk: MemDisk, path: str, rng: random.Random) -> None:
    data = bytearray(disk.read_file(path))
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        disk.write_file_atomically(path, bytes(data))


def cut(disk: MemDisk, path: str, rng: random.Random) -> None:
    data = disk.read_file(path)
    disk.write_file_atomically(path, data[: rng.randrange(len(data))] if data else b"")


def garble(disk: MemDisk, path: str, rng: random.Random) -> None:
    disk.write_file_atomically(path, rng.randbytes(max(1, len(disk.read_file(path)))))


def lose(disk: MemDisk, path: str, rng: random.Random) -> None:
    disk.unlink(path)
    disk.sync_dir(path.rpartition("/")[0])


_TEXT: Final[tuple[Rot, ...]] = (garble, cut)
ANYWHERE: Final[Mapping[str, Sequence[Rot]]] = {
    ".snapshot": (flip, cut, lose, garble),
    ".index": (cut, lose),
    ".timeindex": (cut, lose),
    checkpoints.LEADER_EPOCH_CHECKPOINT: (garble, lose),
    checkpoints.RECOVERY_POINT_CHECKPOINT: (garble, lose),
    checkpoints.HW_CHECKPOINT: (garble, lose),
    checkpoints.LOG_START_CHECKPOINT: (garble, lose),
    checkpoints.CLEANER_CHECKPOINT: (garble, lose),
    STATEMENTS: (flip, garble, lose),
    FLUSH_MARK: (flip, garble),
    ".checkpoint": (flip, cut, garble),
    META_PROPERTIES: _TEXT,
    QUORUM_STATE: _TEXT,
}
"""The damage that a file whose name ends so may take, on any node."""
OF_OBSERVERS: Final[Mapping[str, Sequence[Rot]]] = {".log": (flip, cut, lose, garble), QUORUM_STATE: (lose,)}
"""The damage that a node without a vote bears as well, below its metadata directory: it fetches the metadata anew."""


def candidates(disk: MemDisk, config: ServerConfig) -> list[tuple[str, Sequence[Rot]]]:
    """Every file that may be damaged, with the ways in which it may be."""
    found: list[tuple[str, Sequence[Rot]]] = []
    for directory in config.all_log_dirs:
        for path in disk.tree(directory):
            name = path.rpartition("/")[2]
            ways = [rot for suffix, rots in ANYWHERE.items() if name.endswith(suffix) for rot in rots]
            if not config.is_controller and f"/{METADATA_TOPIC}-0/" in path:
                ways += [rot for suffix, rots in OF_OBSERVERS.items() if name.endswith(suffix) for rot in rots]
            if ways and "-delete/" not in path:
                found.append((path, ways))
    return found


def damage_one(disk: MemDisk, config: ServerConfig, rng: random.Random) -> tuple[str, str, bytes] | None:
    """Damage a file; its path, what was done, and what was in it. Files of each kind come up equally often, however many."""
    by_kind: dict[str, list[tuple[str, Sequence[Rot]]]] = {}
    for path, ways in candidates(disk, config):
        by_kind.setdefault(path.rpartition("/")[2].rpartition(".")[2], []).append((path, ways))
    if not by_kind:
        return None
    path, ways = rng.choice(by_kind[rng.choice(sorted(by_kind))])
    rot, before = rng.choice(ways), disk.read_file(path)
    rot(disk, path, rng)
    return path, rot.__name__, before


def damage_latest_snapshot(disk: MemDisk, config: ServerConfig, rng: random.Random) -> tuple[str, str, bytes] | None:
    """The same to the newest metadata snapshot; None where there is none."""
    directory = f"{config.metadata_log_dir}/{METADATA_TOPIC}-0"
    found = [it for it in disk.tree(directory) if it.endswith(".checkpoint")] if disk.stat(directory) is not None else []
    if not found:
        return None
    path, rot = max(found), rng.choice(ANYWHERE[".checkpoint"])
    before = disk.read_file(path)
    rot(disk, path, rng)
    return path, rot.__name__, before


def old_files(disk: MemDisk, config: ServerConfig) -> list[str]:
    """Leave what a version before 0.1 had written: without statements, flush mark, epochs, time indexes and producer snapshots.
    Return the paths that are gone."""
    newer = (STATEMENTS, FLUSH_MARK, checkpoints.LEADER_EPOCH_CHECKPOINT, ".timeindex", ".snapshot")
    gone = [path for directory in config.all_log_dirs for path in disk.tree(directory) if path.endswith(newer)]
    for path in gone:
        disk.unlink(path)
        disk.sync_dir(path.rpartition("/")[0])
    return gone
