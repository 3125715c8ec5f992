"""Invariant 36, of a log that is cut: the disk does not say any more that there is what was cut off (LG-53)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.log.statements import STATEMENTS, _parse
from kraftlite.model.ids import METADATA_TOPIC, NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogRestarted, LogTruncated
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.simhost.host import SimHost


class StatementsHold(Checker):
    """The statements that a power cut would leave of a log that was cut, or begun anew, speak of no records and of no segment
    that it has no more: the next start would miss them, and refuse a log of which nothing is lost, or take it for one that has
    lost what was committed. Not judged is a directory that has failed, which is made anew or left as it is."""

    numbers: ClassVar[tuple[int, ...]] = (36,)
    only_events: ClassVar[tuple[type[TraceEvent], ...] | None] = (LogTruncated, LogRestarted)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._cut: dict[NodeId, dict[TopicPartition, None]] = {}
        """In the callback that runs."""
        self.judged = 0

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, LogTruncated | LogRestarted) and event.tp.topic != METADATA_TOPIC:
            self._cut.setdefault(node.node_id, {})[event.tp] = None

    def on_step(self, node: SimHost) -> None:
        if node.node_id not in self._cut:
            return
        cut = self._cut.pop(node.node_id)
        broker = None if node.node is None else node.node.broker
        for tp in cut if broker is not None else ():
            assert broker is not None
            log = broker.log_dirs.get(tp)
            if log is None or log.topic_id is None:
                continue
            path = log.directory.rpartition("/")[0]
            data = node.disk.surviving(path, STATEMENTS).get(STATEMENTS)
            said = None if data is None else _parse(path, data).get((log.topic_id, tp.partition))
            if said is None:
                continue
            self.judged += 1
            if said.end > log.leo or said.active > log.active_base_offset or said.start < log.segment_base_offsets[0]:
                self.fail(
                    f"{tp} on node {node.node_id} was cut, its segments begin at {log.segment_base_offsets}, and it ends at "
                    f"{log.leo}; a power cut would leave the statement {said}"
                )
