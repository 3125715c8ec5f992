"""Invariant 36: what a broker's disk has promised of a log is there after any end of that broker (BL-10, LG-26, LG-53)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from kraftlite.log import checkpoints
from kraftlite.log.batch import check_crc, iter_batches
from kraftlite.log.statements import STATEMENTS, Statements
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import LogDirFailed, StrayLogSetAside
from kraftlite.runtime.trace.log import LogOpened
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import Batch, ReplicaView, Stamp
from kraftlite.simhost.disk import MemDisk
from kraftlite.simhost.host import SimHost


@dataclass(slots=True, kw_only=True)
class Promised:
    """One log of an incarnation that has ended. `batches` is what it held from offset `start` on."""

    tp: TopicPartition
    directory: str
    start: int
    batches: tuple[Batch, ...]
    end: int
    """Everything below it is to survive a power cut, because `said` says so."""
    said: str
    leo: int
    """The end that the log is to have at its next start: where it ended, or `end` after a power cut."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The promises that the files of one log directory make."""

    recovery_points: Mapping[TopicPartition, int]
    statements: Statements
    clean: bool

    def end(self, topic_id: UUID, tp: TopicPartition) -> tuple[int, str]:
        """Up to where the log is said to be durable, and by which file."""
        stated = self.statements.get((topic_id, tp.partition))
        return max(
            (self.recovery_points.get(tp, 0), checkpoints.RECOVERY_POINT_CHECKPOINT),
            (0 if stated is None else stated.end, STATEMENTS),
        )


class PromisesKept(ReplicaChecker):
    """Four things promise that a part of a log is durable: a flush that has ended, the recovery-point checkpoint, the end in
    `log-statements`, and the clean-shutdown marker, which promises all. At every end of a broker the disk itself is asked
    whether a power cut would leave, or has left, what was promised; and the next start must open the log that far, or as far
    as it went if the machine lived on. A loss of this kind is never excused: the faults of a run do not entitle to it.

    Not judged are disks that reported an error to the incarnation that ended, since it may have been cutting its log just
    then, replicas whose files were damaged or wiped, and compacted logs.
    """

    numbers: ClassVar[tuple[int, ...]] = (36,)
    only_events = (LogOpened, LogDirFailed, StrayLogSetAside)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._open: dict[NodeId, dict[TopicIdPartition, ReplicaView]] = {}
        """The replicas of the incarnation that runs."""
        self._promised: dict[NodeId, dict[TopicIdPartition, Promised]] = {}
        """Logs that no incarnation has opened since they were closed, or left."""
        self._failing: set[NodeId] = set()

    def on_boot(self, node: SimHost) -> None:
        self._open[node.node_id] = {}
        self._failing.discard(node.node_id)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        if was is None:
            self._open.setdefault(view.node_id, {})[view.key] = view

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is LogOpened:
            assert isinstance(event, LogOpened)
            self._opened(node, event)
        elif kind is LogDirFailed:
            self._failing.add(node.node_id)
        elif kind is StrayLogSetAside:
            assert isinstance(event, StrayLogSetAside)
            for key, it in list(self._promised.get(node.node_id, {}).items()):
                if str(it.tp) == event.partition:
                    del self._promised[node.node_id][key]

    # --- an end

    def on_death(self, node: SimHost, how: str) -> None:
        node_id = node.node_id
        views, promised = self._open.pop(node_id, {}), self._promised.setdefault(node_id, {})
        if how in ("wiped", "failed") or node_id in self._failing:
            promised.clear()
            return
        with node.disk.undisturbed():
            files = {path: _read(node.disk, path) for path in node.config.all_log_dirs if node.disk.stat(path) is not None}
            for key, view in views.items():
                found = self._promise(view, files)
                if found is not None:
                    promised[key] = found
            for it in promised.values():
                if how == "power":
                    it.leo = it.end
                if (node_id, it.tp) not in self.world.losses.damaged:  # not yet so when it was closed, perhaps
                    self._check_disk(node, it, how)

    def _promise(self, view: ReplicaView, files: Mapping[str, _Files]) -> Promised | None:
        log = view.log
        if log is None or self.facts.truth(view.key, view.tp).compacted or (view.node_id, view.tp) in self.world.losses.damaged:
            return None
        log_dir, _, name = log.directory.rpartition("/")
        if name != str(view.tp):
            return None  # deleted, or set aside
        here = files[log_dir]
        end, said = max((log.recovery_point, "a flush"), here.end(view.key.topic_id, view.tp))
        if here.clean and log.leo > end:
            end, said = log.leo, checkpoints.CLEAN_SHUTDOWN
        start = log.log_start_offset
        batches = tuple(it for it in view.batches if it.next_offset > start)
        return Promised(tp=view.tp, directory=log.directory, start=start, batches=batches, end=end, said=said, leo=log.leo)

    def _check_disk(self, node: SimHost, it: Promised, how: str) -> None:
        wanted = [batch for batch in it.batches if batch.next_offset <= it.end]
        durable = _durable(node.disk, it.directory) if wanted else set()
        for batch in wanted:
            if (batch.base_offset, batch.crc) not in durable:
                what = "has left" if how == "power" else "would leave"
                self.fail(
                    f"{it.tp} on node {node.node_id}, {how}: {it.said} promises everything below offset {it.end}, and a power "
                    f"cut {what} the log without {batch}"
                )

    # --- the next start

    def _opened(self, node: SimHost, event: LogOpened) -> None:
        promised = self._promised.get(node.node_id, {})
        for key, it in list(promised.items()):
            if it.tp != event.tp:
                continue
            del promised[key]
            known = self.facts.metadata.history.latest.topics.get(key.topic_id)
            damaged = (node.node_id, it.tp) in self.world.losses.damaged
            if known is not None and not damaged and event.leo < it.leo:
                lost = "a power cut" if it.leo == it.end else "no power cut"
                self.fail(
                    f"{it.tp} on node {node.node_id} ends at offset {event.leo} when it is opened again; it ended at {it.leo} "
                    f"({it.said} promised {it.end}, {lost} came between)"
                )


def _read(disk: MemDisk, log_dir: str) -> _Files:
    statements = Statements(disk, f"{log_dir}/{STATEMENTS}")
    statements.load()
    return _Files(
        recovery_points=checkpoints.read_offset_checkpoint(disk, f"{log_dir}/{checkpoints.RECOVERY_POINT_CHECKPOINT}"),
        statements=statements,
        clean=checkpoints.read_clean_shutdown(disk, log_dir) is not None,
    )


def _durable(disk: MemDisk, directory: str) -> set[tuple[int, int]]:
    """Base offset and CRC of each intact batch that a power cut would leave for certain."""
    found: set[tuple[int, int]] = set()
    for data in disk.surviving(directory, ".log").values():
        try:
            for header, raw in iter_batches(data):
                if check_crc(raw, header):
                    found.add((header.base_offset, header.crc))
        except ApiError:
            continue  # the rest of this segment is torn
    return found
