"""Invariant 45, of a pass that meets a truncation: what was cut off supersedes nothing (LG-47)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple
from uuid import UUID

from kraftlite.log.log import Log
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchResponse
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogCleaned, LogCleaningAborted, LogOpened, LogRestarted, LogTruncated
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.log_files import Rec, batches_in, files_of, running_log
from kraftlite.simhost.host import SimHost

Replica = tuple[NodeId, TopicPartition]


class _Cut(NamedTuple):
    topic_id: UUID | None
    newest: dict[bytes, Rec]
    """The newest record of each key when the log had been cut off, unless that is a tombstone or of a transaction."""


class CutsSupersedeNothing(Checker):
    """The pass that ends next when a compacted log was cut off leaves, of each key that the log still had, a record that is no
    older: one that was cut off is no reason to remove it. A pass cannot remove a tombstone that came meanwhile, since the
    first one that meets it only gives it its time, unless it has one already from the leader's log. This also holds where an
    unclean election excuses losses."""

    numbers: ClassVar[tuple[int, ...]] = (45,)
    only_methods = (REPLICA_FETCH,)
    only_events = (LogCleaned, LogCleaningAborted, LogOpened, LogRestarted, LogTruncated)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._cuts: dict[Replica, _Cut] = {}
        self.judged = 0

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if not isinstance(event, LogCleaned | LogCleaningAborted | LogOpened | LogRestarted | LogTruncated):
            return
        key = (node.node_id, event.tp)
        cut, log = self._cuts.pop(key, None), running_log(node, event.tp)
        if log is None or log.topic_id is None or not log.config.compacted:
            return
        if isinstance(event, LogTruncated):
            self._cuts[key] = _Cut(log.topic_id, _newest(node, log))
        elif isinstance(event, LogCleaned | LogCleaningAborted) and cut is not None and cut.topic_id == log.topic_id:
            self._judge(node, log, cut)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        """Forget the keys of tombstones that come with their time: the next pass may remove them, and what they supersede."""
        mine = {(cut.topic_id, tp.partition): cut.newest for (node_id, tp), cut in self._cuts.items() if node_id == source}
        if not mine or not isinstance(response, ReplicaFetchResponse):
            return
        position = 0
        for result in response.partitions:
            begin, position = position, position + result.records_length
            newest = mine.get((result.topic_id, result.partition))
            if newest:
                for batch in batches_in(bytes(response.payload[begin:position])):
                    for it in batch.records if batch.header.has_delete_horizon else ():
                        newest.pop(it.key or b"", None)

    def on_death(self, node: SimHost, how: str) -> None:
        self._cuts = {key: cut for key, cut in self._cuts.items() if key[0] != node.node_id}

    def _judge(self, node: SimHost, log: Log, cut: _Cut) -> None:
        self.judged += 1
        left: dict[bytes | None, int] = {}
        for _, data in files_of(node, log.directory):
            left |= {it.key: it.offset for batch in batches_in(data) for it in batch.records}
        for key, it in cut.newest.items():
            if log.log_start_offset <= it.offset and left.get(key, -1) < it.offset:
                self.fail(
                    f"{log.tp} on node {node.node_id}: {it} is gone, the newest of its key when the log had been cut off; what "
                    f"is left of the key is at {left.get(key)}"
                )


def _newest(node: SimHost, log: Log) -> dict[bytes, Rec]:
    found: dict[bytes, Rec] = {}
    for _, data in files_of(node, log.directory):
        for batch in batches_in(data):
            for it in batch.records:
                if it.key is None:
                    continue
                if it.value is None or batch.header.is_transactional:
                    found.pop(it.key, None)
                else:
                    found[it.key] = it
    return found
