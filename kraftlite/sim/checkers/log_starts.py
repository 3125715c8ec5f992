"""Part of invariant 30: a log begins where it began, unless somebody deleted what lay below."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogOpened, LogRestarted, LogStartAdvanced
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.simhost.host import SimHost


class LogStartsFounded(Checker):
    """A start may find less in its files than there was. It must not take that for the beginning: a log start that no running
    replica had yet is a loss that looks like a deletion, to every other checker as well (ADR 7). A log is not judged while
    segments that retention deleted wait in its directory: their broker may have died before it said so, and of a damaged log the
    lost one may be among them."""

    numbers: ClassVar[tuple[int, ...]] = (30,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._highest: dict[TopicPartition, int] = {}

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is LogStartAdvanced:
            assert isinstance(event, LogStartAdvanced)
            self._highest[event.tp] = max(self._highest.get(event.tp, 0), event.new)
        elif kind is LogRestarted:
            assert isinstance(event, LogRestarted)
            self._highest[event.tp] = max(self._highest.get(event.tp, 0), event.offset)
        elif kind is LogOpened:
            assert isinstance(event, LogOpened)
            highest = self._highest.get(event.tp, 0)
            if (
                event.log_start_offset > highest
                and event.tp.topic != METADATA_TOPIC
                and not self._may_take_for_deleted(node, event.tp)
            ):
                self.fail(
                    f"{event.tp} on node {node.node_id} begins at offset {event.log_start_offset} after its start, "
                    f"nobody deleted more than what lies below {highest}"
                )

    def _may_take_for_deleted(self, node: SimHost, tp: TopicPartition) -> bool:
        if node.node is None or node.node.broker is None:
            return False
        names = node.disk.listdir(f"{node.config.log_dirs[0]}/{tp}")
        return node.node.broker.configs.log_config_for(tp.topic).deletes and any(it.endswith(".log.deleted") for it in names)
