"""Invariant 47: log starts move forward, for a reason; DeleteRecords is answered when all replicas have moved (KIP-107)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import METADATA_TOPIC, NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import DeleteRecordsResult
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import ReplicaMoved
from kraftlite.runtime.trace.log import LogOpened, LogRestarted, LogStartAdvanced, LogTruncated, SegmentDeleted
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.log_files import running_log
from kraftlite.sim.services.logs import DELETE_RECORDS, DeleteAsk
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

Replica = tuple[NodeId, TopicPartition]
REQUESTED = "DeleteRecords"
FOLLOWED = "leader's log start"


class LogStartsFollow(Checker):
    """A log start moves up to what a client asked to delete at this leader; to a log start that another replica had; or to the
    end of a segment that retention deleted (invariant 46 judges that). In one incarnation it never goes back, but to the end of
    a log that was cut before it, nor beyond the HW.
    After a restart it is not below what its broker, as leader, answered to a DeleteRecords, nor, after a clean stop, below what
    it was (LG-40); nor in another directory of its broker below what it was (JB-11). DeleteRecords succeeds when every live
    replica has moved at least to the offset that was asked for, and to the low watermark that is answered (RP-17)."""

    numbers: ClassVar[tuple[int, ...]] = (47,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._starts: dict[Replica, int] = {}
        self._highest: dict[Replica, int] = {}
        """The highest log start that a replica ever had."""
        self._promised: dict[Replica, int] = {}
        self._asked: dict[Replica, int] = {}
        """The highest offset up to which a client asked this broker to delete; -1 counts as the HW of that time."""
        self._to_hw: dict[AnyExchange, Replica] = {}
        """Those up to the HW that have no answer: a broker that was paused takes the HW of when it goes on."""
        self._segments: dict[Replica, int] = {}
        """The highest base offset that the first segment had after a deletion."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is LogStartAdvanced:
            assert isinstance(event, LogStartAdvanced)
            if event.tp.topic != METADATA_TOPIC:
                self._advanced(node, event)
        elif kind is SegmentDeleted:
            assert isinstance(event, SegmentDeleted)
            log = running_log(node, event.tp)
            if log is not None:
                self._segments[(node.node_id, event.tp)] = log.segment_base_offsets[0]
        elif kind is LogTruncated:
            assert isinstance(event, LogTruncated)
            self._truncated(node, event)
        elif kind is LogOpened or kind is LogRestarted:
            assert isinstance(event, LogOpened | LogRestarted)
            self._placed(node, event)
        elif kind is ReplicaMoved:
            assert isinstance(event, ReplicaMoved)
            self._moved(node, event)

    def _moved(self, node: SimHost, event: ReplicaMoved) -> None:
        log, known = running_log(node, event.tp), self._starts.get((node.node_id, event.tp), 0)
        if log is not None and log.log_start_offset < known:
            self.fail(
                f"{event.tp} on node {node.node_id} begins at {log.log_start_offset} in {event.target}; in {event.source} it "
                f"began at {known}"
            )

    def _placed(self, node: SimHost, event: LogOpened | LogRestarted) -> None:
        key = (node.node_id, event.tp)
        start = event.offset if isinstance(event, LogRestarted) else event.log_start_offset
        promised = self._promised.pop(key, 0)
        if isinstance(event, LogOpened) and start < promised and event.leo >= promised and key not in self.world.losses.damaged:
            self.fail(f"{event.tp} on node {node.node_id} begins at {start} after its start; promised was {promised}")
        self._starts[key] = start
        self._highest[key] = max(start, self._highest.get(key, 0))

    def _truncated(self, node: SimHost, event: LogTruncated) -> None:
        """A leader that was elected uncleanly may have had less than this replica had lost on request."""
        key = (node.node_id, event.tp)
        self._starts[key] = min(event.leo, self._starts.get(key, 0))

    def _advanced(self, node: SimHost, event: LogStartAdvanced) -> None:
        key, tp = (node.node_id, event.tp), event.tp
        where = f"{tp} on node {node.node_id}: the log start goes from {event.old} to {event.new} ({event.reason})"
        known = self._starts.get(key, 0)
        if event.new <= event.old or event.old < known:
            self.fail(f"{where}, it was {known}")
        log = running_log(node, tp)
        if log is not None and event.new > log.hw:
            self.fail(f"{where}, the HW is {log.hw}")
        if event.reason == REQUESTED:
            asked = self._asked.get(key, -1)
            if event.new > asked and key not in self._to_hw.values():
                self.fail(f"{where}, the highest offset that a client asked for is {asked}")
        elif event.reason == FOLLOWED:
            others = max((it for (who, of), it in self._highest.items() if of == tp and who != node.node_id), default=0)
            if event.new > others:
                self.fail(f"{where}, no other replica ever began behind {others}")
        elif event.new > self._segments.get(key, 0):
            self.fail(f"{where}, the first segment begins at {self._segments.get(key, 0)}")
        self._starts[key] = event.new
        self._highest[key] = max(event.new, self._highest.get(key, 0))

    def on_death(self, node: SimHost, how: str) -> None:
        mine = [it for it in self._starts if it[0] == node.node_id]
        for key in mine:
            if how == "stopped":
                self._promised[key] = max(self._starts[key], self._promised.get(key, 0))
            elif how in ("wiped", "failed"):
                self._promised.pop(key, None)

    # --- DeleteRecords

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is not DELETE_RECORDS:
            return
        ask = exchange.request
        assert isinstance(ask, DeleteAsk)
        node = self.world.nodes[exchange.target]
        log = running_log(node, ask.tp)
        hw = -1 if log is None else log.hw
        offset = hw if ask.offset == -1 else ask.offset
        key = (node.node_id, ask.tp)
        self._asked[key] = max(offset, self._asked.get(key, -1))
        if ask.offset == -1:
            self._to_hw[exchange] = key

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if exchange.method is not DELETE_RECORDS:
            return
        self._to_hw.pop(exchange, None)
        ask, node = exchange.request, self.world.nodes[exchange.target]
        assert isinstance(ask, DeleteAsk) and isinstance(response, DeleteRecordsResult)
        what = f"{ask.tp}: node {node.node_id} answers {ask}"
        broker = None if node.node is None else node.node.broker
        if broker is None:
            return
        if response.error is not ErrorCode.NONE:
            if response.error not in REFUSALS:
                self.fail(f"{what} with {response.error.name}")
            return
        low = response.low_watermark
        if low < ask.offset:
            self.fail(f"{what} with the low watermark {low}")
        image = broker.cache.image
        registration = broker.cache.partition(ask.tp.topic, ask.tp.partition)
        for replica in () if registration is None else registration.replicas:
            known = image.cluster.brokers.get(replica)
            if known is None or known.fenced:
                continue
            highest = self._highest.get((replica, ask.tp), 0)
            if highest < low:
                self.fail(f"{what} with the low watermark {low}; node {replica} never began behind {highest}")
        key = (node.node_id, ask.tp)
        self._promised[key] = max(self._promised.get(key, 0), self._starts.get(key, 0))


REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip
"""All that a DeleteRecords may be refused with (LG-40)."""
