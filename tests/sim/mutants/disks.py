"""What a node makes of disks that fail, tear and lie, and of files that were damaged while it was down."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kraftlite.broker.log_dirs import LogDirs
from kraftlite.host import disk as host_disk
from kraftlite.log import producer_snapshots, segment
from kraftlite.log.flusher import Flusher
from kraftlite.model.errors import Fault
from kraftlite.raft import damage, metalog
from kraftlite.raft.quorum_state import QuorumStateStore
from kraftlite.raft.snapshots import SnapshotReader
from kraftlite.runtime import whole_io
from kraftlite.sim import rot, troubles
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.simhost import disk as simulated_disk
from tests.sim.mutants.catalog import Change, mutant
from tests.sim.mutants.lenses import configured, together
from tests.sim.mutants.patching import Patch


def every_node(*plans: FaultPlan, every_ms: int = 0) -> Change:
    """Every run has these faults, on one node after the other, and no other troubles."""

    def draw(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
        nodes = list(range(1, len(shape.roles) + 1))
        step_ms = every_ms or duration_ms // (2 * len(nodes) + 1)
        found = []
        for number, node in enumerate(nodes * 2, 1):
            for plan in plans:
                at_ms = number * step_ms + plan.at_ms
                found.append(
                    FaultPlan(at_ms=at_ms, kind=plan.kind, target=str(node), for_ms=plan.for_ms, amount=plan.amount + number)
                )
        return [it for it in found if it.at_ms < duration_ms]

    return lambda patch: patch.set(troubles, "draw", draw)


def rotten(suffix: str, *ways: rot.Rot, observers: bool = False) -> Change:
    """On every node files of this kind are damaged in these ways while it is down."""

    def lens(patch: Patch) -> None:
        here: Mapping[str, Sequence[rot.Rot]] = {suffix: ways}
        patch.set(rot, "ANYWHERE", {} if observers else here)
        patch.set(rot, "OF_OBSERVERS", here if observers else {})
        every_node(FaultPlan(at_ms=0, kind="rot", for_ms=100, amount=2))(patch)

    return lens


lost_flushes = every_node(FaultPlan(at_ms=0, kind="fsync-lost", for_ms=400), FaultPlan(at_ms=600, kind="power", for_ms=100))


FLUSHED = "            await file.flush()"
GUARDED = "            try:\n                await file.flush()\n            except OSError:\n                "


@mutant("failed-flush-believed", "a flush that failed counts as one that has ended", expects=("6", "36", "4"), lens=lost_flushes)
def failed_flush_believed(patch: Patch) -> None:
    """PostgreSQL's "fsyncgate" (2018): the next fsync succeeded, and the pages of the failed one were gone."""
    patch.edit(Flusher, "flush", (FLUSHED, GUARDED + "pass"))


@mutant("failed-flush-tried-again", "a flush that failed is tried again, and counts", expects=("6", "36", "4"), lens=lost_flushes)
def failed_flush_tried_again(patch: Patch) -> None:
    """Rebello et al., "Can Applications Recover from fsync Failures?" (ATC '20): retrying is what most systems did."""
    patch.edit(Flusher, "flush", (FLUSHED, GUARDED + "await file.flush()"))


@mutant(
    "short-write-believed",
    "a write of which the system did a part counts as done",
    expects=("crash", "4", "28", "36", "6", "29"),
    lens=every_node(FaultPlan(at_ms=0, kind="short-io", for_ms=3_000, amount=1)),
)
def short_write_believed(patch: Patch) -> None:
    """KAFKA-1211 and many others: `FileChannel.write` returned less than the buffer had, and nobody looked."""

    def write_once(pwrite, buffers, offset):  # type: ignore[no-untyped-def]
        pwrite(memoryview(b"".join(buffers)), offset)
        return sum(len(it) for it in buffers)

    patch.set(whole_io, "write_each", write_once, also=(simulated_disk, host_disk))


@mutant(
    "short-read-believed",
    "a read of which the system did a part counts as the end of the file",
    expects=("crash", "4", "28", "29", "16", "liveness"),
    lens=every_node(FaultPlan(at_ms=0, kind="short-io", for_ms=3_000, amount=1)),
)
def short_read_believed(patch: Patch) -> None:
    """POSIX lets `read` return less than there is; code that took it for the end of the file lost what was behind."""
    patch.set(whole_io, "finish_read", lambda pread, data, length, offset: data, also=(simulated_disk, host_disk))


@mutant(
    "producer-snapshot-unchecked",
    "the CRC of a snapshot of producers is not looked at",
    expects=("crash", "28", "30", "38", "ProducerState"),
    lens=rotten(".snapshot", rot.flip),
)
def producer_snapshot_unchecked(patch: Patch) -> None:
    """LG-20. Bairavasundaram et al., "An Analysis of Data Corruption in the Storage Stack" (FAST '08): bits do turn over."""
    patch.edit(producer_snapshots, "decode_snapshot", ("crc != crc32c(body) or ", ""))


@mutant(
    "metadata-snapshot-unchecked",
    "the CRC of a metadata snapshot is not looked at",
    expects=("crash", "16", "14", "11"),
    lens=rotten(".checkpoint", rot.flip),
)
def metadata_snapshot_unchecked(patch: Patch) -> None:
    """RF-46; "Protocol-Aware Recovery" (FAST '18): a checkpoint that is believed spreads the damage to everything after it."""
    rule = "if not check_crc(raw, header):"
    patch.edit(SnapshotReader, "_check", (rule, "if False:"))
    patch.edit(SnapshotReader, "raw_batches", (rule, "if False:"))


@mutant(
    "unreadable-votes-forgotten",
    "a voter whose quorum-state cannot be read begins without one",
    expects=("2", "3", "crash"),
    lens=rotten("quorum-state", rot.garble, rot.cut),
)
def unreadable_votes_forgotten(patch: Patch) -> None:
    """RF-12: it votes a second time in an epoch. ZooKeeper and etcd both had to learn not to start with an empty vote."""

    def read(original, self):  # type: ignore[no-untyped-def]
        try:
            return original(self)
        except Fault:
            return None

    patch.around(QuorumStateStore, "read", read)


@mutant(
    "failed-directory-served",
    "a log directory whose disk has failed goes on being served",
    expects=("36", "28", "6", "25", "29", "crash", "liveness", "14", "26", "38"),
    lens=every_node(
        FaultPlan(at_ms=0, kind="fsync-lost", for_ms=400), FaultPlan(at_ms=10, kind="disk-flaky", for_ms=800, amount=50)
    ),
)
def failed_directory_served(patch: Patch) -> None:
    """LG-31, LG-32: after an error nobody knows what of a write is in the file."""
    patch.edit(LogDirs, "_fail", ("if not state.online:", "if True:"))


@mutant(
    "unreadable-metadata-log-kept",
    "a node keeps the batches of its metadata log that are damaged",
    expects=("crash", "4", "16", "6"),
    lens=rotten(".log", rot.flip, observers=True),
)
def unreadable_metadata_log_kept(patch: Patch) -> None:
    """LG-27 in the log that everybody acts on: the CRC of what is found at the start is not looked at."""
    patch.set(segment, "check_crc", lambda batch, header=None: True)


slow_then_dark = together(
    every_node(
        FaultPlan(at_ms=0, kind="disk-slow", for_ms=2_500, amount=900_000),
        FaultPlan(at_ms=2_000, kind="power", for_ms=200, amount=7),
        every_ms=2_600,
    ),
    configured(metadata_log_segment_ms="250"),
)


@mutant(
    "unflushed-hole-is-damage",
    "an only controller does not start when a power cut has taken the first of several segments that were not flushed",
    expects=("crash",),
    shape="1+1",
    lens=slow_then_dark,
)
def unflushed_hole_is_damage(patch: Patch) -> None:
    """RF-46: what nobody was promised is not missing."""
    patch.edit(damage, "check_only_copy", ("mark is not None and expected >= flushed", "False"), also=(metalog,))
